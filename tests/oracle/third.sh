#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Make (once) the environment of check_third.py beside that of venv.sh, whose packages it uses, and
# print the path of its interpreter. The tools ask for far more than what is imported here, so their
# own lists of dependencies are not followed.
#   PY=$(tests/oracle/third.sh) && $PY tests/oracle/check_third.py build
set -eu
base=$("$(dirname "$0")/venv.sh")
dir=${SLUICE_THIRD_VENV:-$HOME/.cache/sluice/third}
if [ ! -x "$dir/bin/python" ]; then
    "$base" -m venv "$dir" >&2
    site=$("$dir/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
    "$base" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])' >"$site/base.pth"
    echo "$dir/autoawq-0.2.9" >"$site/awq.pth" # its setup.py wants a GPU
fi
if ! "$dir/bin/python" -W ignore -c 'import llmcompressor, gptqmodel, awq, modelopt' >/dev/null 2>&1
then
    # gptqmodel's extension is for GPUs; what is read here is its Python code
    BUILD_CUDA_EXT=0 "$dir/bin/python" -m pip install -q --no-deps --disable-pip-version-check \
        compressed-tensors==0.20.0 llmcompressor==0.14.0.1 nvidia-modelopt==0.47.0 \
        gptqmodel==7.7.0 \
        auto-gptq==0.7.1 optimum==2.3.0 accelerate==1.15.0 datasets==5.2.0 pyarrow==26.0.1 \
        dill==0.4.1 multiprocess==0.70.19 xxhash==4.1.0 loguru==0.7.3 pandas==3.1.1 psutil==7.2.2 \
        pydantic==2.14.3 pydantic-core==2.50.4 annotated-types==0.8.0 typing-inspection==0.4.5 \
        python-dateutil==2.9.0.post0 six pulp==3.3.2 omegaconf==2.4.0 \
        antlr4-python3-runtime==4.9.3 \
        logbar==0.4.15 tokenicer==0.0.14 device-smi==0.5.7 pypcre==0.6.4 threadpoolctl==3.8.0 \
        torchao==0.18.0 defuser==0.0.28 pillow==13.0.0 protobuf==7.36.2 requests==2.34.2 \
        urllib3==2.8.0 charset-normalizer==3.5.2 idna==3.20 certifi==2026.10.18 ninja==1.13.2 \
        maturin==1.16.0 wheel setuptools >&2
    # the source archive, unpacked: installing it would look for a GPU
    (cd "$dir" && "$dir/bin/python" -m pip download -q --no-deps --no-build-isolation \
        --disable-pip-version-check autoawq==0.2.9 >&2 || true
    tar xzf autoawq-0.2.9.tar.gz)
fi
echo "$dir/bin/python"
