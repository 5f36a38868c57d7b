import pkgutil
import subprocess
import sys

from bert_tf import core


def test_core_imports_no_large_library():
    modules = [f"bert_tf.core.{module.name}" for module in pkgutil.iter_modules(core.__path__)]
    program = f"import sys, {', '.join(modules)}; print({{'tensorflow', 'pyarrow'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stderr
