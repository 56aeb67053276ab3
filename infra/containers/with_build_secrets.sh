#!/bin/sh
# Executes a command of an image build with the package indexes and CAs of the build secrets, which only this command and its
# children see. A secret that is not set is absent or empty.
set -eu

secrets=${BUILD_SECRETS:-/run/secrets} # the variable is for tests
if [ -s "$secrets/pip_index_url" ]; then
    PIP_INDEX_URL=$(cat "$secrets/pip_index_url")
    export PIP_INDEX_URL
fi
if [ -s "$secrets/uv_default_index" ]; then
    UV_DEFAULT_INDEX=$(cat "$secrets/uv_default_index")
    export UV_DEFAULT_INDEX
fi
# pip and uv trust the CAs that they contain, unless these variables name others. So does Java, for which SSL_CERT_FILE is converted
# (infra/hourmark_infra/jars/trust_store.py).
trusted=$(mktemp)
trap 'rm -f "$trusted"' EXIT
cat /etc/ssl/certs/ca-certificates.crt >"$trusted"
if [ -s "$secrets/build_ca" ]; then
    cat "$secrets/build_ca" >>"$trusted"
fi
PIP_CERT=$trusted SSL_CERT_FILE=$trusted
export PIP_CERT SSL_CERT_FILE
"$@"
