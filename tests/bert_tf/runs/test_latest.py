import pytest

from bert_tf.core.errors import InputError
from bert_tf.runs import latest


def test_a_folder_without_a_checkpoint_is_refused_by_what_it_is(tmp_path):
    for folder, message in (
        (tmp_path / "missing", "no such folder"),
        (tmp_path, "holds no checkpoint; give a folder where training has saved a checkpoint"),
    ):
        with pytest.raises(InputError, match=message):
            latest.check_there(str(folder))
    (tmp_path / latest.ENSEMBLE_NAME).write_text("{}")
    with pytest.raises(InputError, match="an ensemble, .* give --ensemble_checkpoints with the checkpoints"):
        latest.check_there(str(tmp_path))
