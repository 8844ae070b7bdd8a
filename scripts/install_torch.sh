#!/bin/sh
# Usage: install_torch.sh PYTHON. Installs torch into PYTHON's environment and says which build it got.
set -eu

python=$1
requirement=$(grep '^torch' requirements/torch.txt)

if ! "$python" -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"; then
    cat <<EOF

$requirement comes next. Where pip is configured with a source of CPU builds, it takes one. Otherwise it
takes PyPI's default build, which runs on this machine too but needs about 5 GB more disk. To avoid that,
stop here, and name the source of CPU builds that torch's own install page gives for pip:
    PIP_EXTRA_INDEX_URL=<index of CPU builds> make ...    or    PIP_FIND_LINKS=<folder of wheels> make ...

EOF
fi

# cpu.txt leaves out what vLLM declares but does not need here: pip need not warn about it
"$python" -m pip install --quiet --no-warn-conflicts -r requirements/torch.txt

"$python" - <<EOF
import torch

build = f"the default build (CUDA {torch.version.cuda})" if torch.version.cuda else "a CPU build"
print(f"torch {torch.__version__}: {build}")
EOF
