#!/bin/sh
# Make the environment of the book, or another's: environment.sh FOLDER [PYTHON [REQUIREMENTS]]
# Without PYTHON, the first of python3.13, python3.12, python3.11, python3 that runs and is 3.11 to 3.13.
# For Colab's requirements pyenv's 3.13 is one of them.
set -eu
folder=$1
asked=${2:-}
requirements=${3:-requirements.txt}
pyenv=
if [ "$requirements" = requirements-colab.txt ]; then
    pyenv=$(ls -d "${HOME:-}"/.pyenv/versions/3.13.*/bin/python 2>/dev/null || true)
fi

suits() { # a name may stand on the PATH and still not run: pyenv puts shims there
    "$1" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
        >/dev/null 2>&1
}

python=
for candidate in ${asked:-python3.13 $pyenv python3.12 python3.11 python3}; do
    if suits "$candidate"; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    if [ -n "$asked" ]; then
        echo "PYTHON=$asked is no working Python 3.11, 3.12 or 3.13 with venv." >&2
        "$asked" --version >&2 || true
    else
        echo "No working Python 3.11, 3.12 or 3.13 with venv among python3.13, python3.12," >&2
        echo "python3.11 and python3. Install one, or name it: make PYTHON=/path/to/python3.12" >&2
    fi
    exit 1
fi

echo "Making the environment $folder with $("$python" --version) (a few minutes, once)"
rm -rf "$folder"
"$python" -m venv "$folder"
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check -r "$requirements"
