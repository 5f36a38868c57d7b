"""Fine-tunes, evaluates and runs a model of the similarity of two texts."""

from bert_tf.tasks.similarity.settings import SimilaritySettings

from bert_tf import task_script

main = task_script.main
run = task_script.script_of(SimilaritySettings, __doc__)

if __name__ == "__main__":
    run()
