#!/bin/sh
# The ledger's PostgreSQL: creates its cluster and database at the first start with the password from `setup`, then executes the server.
set -eu

until [ -f /site/ready ]; do sleep 1; done
bin=$(ls -d /usr/lib/postgresql/*/bin)
home=/var/lib/hourmark/postgres
if [ ! -d "$home" ]; then
    rm -rf "$home.new" # of a start that was cut short
    "$bin/initdb" -D "$home.new" -U hourmark --pwfile=/site/ledger-password -A scram-sha-256 -E UTF8 --locale=C \
        --data-checksums
    echo 'host all hourmark samenet scram-sha-256' >>"$home.new/pg_hba.conf"
    echo 'CREATE DATABASE hourmark;' | "$bin/postgres" --single -D "$home.new" postgres >/dev/null
    sync
    mv "$home.new" "$home"
fi
exec "$bin/postgres" -D "$home" -c listen_addresses='*' -c unix_socket_directories=/tmp
