#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# In a container:
#   ranks.sh worker
#   ranks.sh leader HOST,HOST... [options of sluice serve]
#   ranks.sh engine HOST,HOST... SOCKET [options of sluice engine]
# A worker waits for the leader, which starts a rank (SLOTS of them) on every host over ssh with the
# key in /etc/sluice/ssh (a secret with id_ed25519 and authorized_keys). NETWORK: the pods' network.
# An engine is started again whenever it ends, so that servers which are attached to SOCKET go on.
set -eu
role=$1
shift
mkdir -p "$HOME/.ssh"
cp /etc/sluice/ssh/* "$HOME/.ssh/"
chmod 700 "$HOME/.ssh"
chmod 600 "$HOME/.ssh"/*
port=${SSH_PORT:-2222}

# wait_for HOST...: the hosts start at the same time
wait_for() {
    for h in "$@"; do
        i=0
        until [ "${h%%.*}" = "$(hostname)" ] || ssh -p "$port" "$h" true 2>/dev/null; do
            i=$((i + 1))
            [ $i -lt 150 ] || { echo "ranks: $h does not answer" >&2; return 1; }
            sleep 2
        done
    done
}

# ranks COMMAND...: a rank of it in each slot of every host
ranks() {
    mpirun --allow-run-as-root -n "$n" --host "$list" \
        --map-by "ppr:$slots:node" --bind-to none \
        --mca plm_rsh_args "-p $port" \
        --mca btl_tcp_if_include "${NETWORK:?as 10.0.0.0/8}" \
        "$@"
}

case $role in
worker)
    ssh-keygen -A >/dev/null
    exec /usr/sbin/sshd -D -e -p "$port" -o PasswordAuthentication=no
    ;;
leader | engine)
    hosts=$1
    shift
    slots=${SLOTS:-1}
    n=$(($(echo "$hosts" | tr ',' '\n' | grep -c .) * slots))
    list=$(echo "$hosts" | sed "s/,/:$slots,/g"):$slots
    if [ "$role" = leader ]; then
        wait_for $(echo "$hosts" | tr ',' ' ')
        ranks sluice serve --layout "tp=$n" --host 0.0.0.0 --log-json "$@"
        exit
    fi
    socket=$1
    shift
    trap 'exit 0' TERM INT
    while :; do
        wait_for $(echo "$hosts" | tr ',' ' ') &&
            ranks sluice engine --layout "tp=$n" --listen "unix:$socket" "$@" || true
        sleep 1
    done
    ;;
*)
    echo "ranks: $role: worker, leader or engine" >&2
    exit 2
    ;;
esac
