#!/bin/sh
# Makes a CA and a server's certificate for trying gpufence out on one's own machine.
#
#     certs/dev.sh [DIRECTORY]
#
# Writes ca.crt, ca.key, tls.crt and tls.key to the directory, certs/dev by default. What is there and good for another
# week stays; what is not is made anew.
set -eu
umask 077

names='DNS:localhost,DNS:gpufence.gpufence.svc,IP:127.0.0.1'
ca_days=365
days=90
week=604800

fail() {
    echo "certs/dev.sh: $1" >&2
    exit 1
}

command -v openssl >/dev/null 2>&1 || fail 'openssl is not installed; expected OpenSSL 3 (Debian: apt-get install openssl)'
[ $# -le 1 ] || fail "found $# arguments; expected at most one, the directory to write to"

directory=${1:-$(dirname -- "$0")/dev}
mkdir -p -- "$directory" || fail "cannot make the directory $directory"
directory=$(CDPATH='' cd -- "$directory" && pwd)
[ -w "$directory" ] || fail "cannot write to $directory"

work=$(mktemp -d "$directory/.new.XXXXXX")
trap 'rm -rf -- "$work"' EXIT
trap 'exit 1' HUP INT TERM

# Runs openssl, and shows what it says only where it fails.
run() {
    openssl "$@" >"$work/log" 2>&1 || {
        cat -- "$work/log" >&2
        fail "openssl $1 failed; what it says is above"
    }
}

# Whether a certificate is there, is good for another week, and belongs to the key beside it.
good() {
    [ -s "$1.crt" ] && [ -s "$1.key" ] &&
        openssl x509 -in "$1.crt" -noout -checkend "$week" >/dev/null 2>&1 &&
        openssl x509 -in "$1.crt" -noout -pubkey >"$work/of-certificate" 2>/dev/null &&
        openssl pkey -in "$1.key" -pubout >"$work/of-key" 2>/dev/null &&
        cmp -s -- "$work/of-certificate" "$work/of-key"
}

new_key() {
    run genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1"
}

if good "$directory/ca"; then
    echo "kept  $directory/ca.crt"
else
    new_key "$work/ca.key"
    # Its key's beginning in its name: a browser or a pool that knows an earlier one must not mistake it.
    id=$(openssl pkey -in "$work/ca.key" -pubout -outform DER | openssl dgst -sha256 -r | cut -c 1-12)
    run req -new -x509 -key "$work/ca.key" -sha256 -days "$ca_days" -subj "/CN=gpufence development CA $id" \
        -addext 'basicConstraints=critical,CA:TRUE,pathlen:0' -addext 'keyUsage=critical,keyCertSign,cRLSign' \
        -out "$work/ca.crt"
    mv -f -- "$work/ca.key" "$work/ca.crt" "$directory/"
    echo "made  $directory/ca.crt"
fi

if good "$directory/tls" &&
    openssl verify -x509_strict -purpose sslserver -CAfile "$directory/ca.crt" "$directory/tls.crt" >/dev/null 2>&1 &&
    openssl x509 -in "$directory/tls.crt" -noout -checkhost gpufence.gpufence.svc | grep -q 'does match'; then
    echo "kept  $directory/tls.crt"
else
    new_key "$work/tls.key"
    run req -new -key "$work/tls.key" -subj '/CN=gpufence' -out "$work/tls.csr"
    cat >"$work/extensions" <<END
basicConstraints=critical,CA:FALSE
keyUsage=critical,digitalSignature
extendedKeyUsage=serverAuth
subjectKeyIdentifier=hash
authorityKeyIdentifier=keyid
subjectAltName=$names
END
    run x509 -req -in "$work/tls.csr" -CA "$directory/ca.crt" -CAkey "$directory/ca.key" -set_serial "0x$(openssl rand -hex 16)" \
        -sha256 -days "$days" -extfile "$work/extensions" -out "$work/tls.crt"
    mv -f -- "$work/tls.key" "$work/tls.crt" "$directory/"
    echo "made  $directory/tls.crt"
fi
