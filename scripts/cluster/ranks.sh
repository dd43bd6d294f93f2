#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# In a container: ranks.sh worker | leader HOST,HOST... [options of sluice serve]
# A worker waits for the leader, which starts a rank (SLOTS of them) on every host over ssh with the
# key in /etc/sluice/ssh (a secret with id_ed25519 and authorized_keys). NETWORK: the pods' network.
set -eu
role=$1
shift
mkdir -p "$HOME/.ssh"
cp /etc/sluice/ssh/* "$HOME/.ssh/"
chmod 700 "$HOME/.ssh"
chmod 600 "$HOME/.ssh"/*
case $role in
worker)
    ssh-keygen -A >/dev/null
    exec /usr/sbin/sshd -D -e -p "${SSH_PORT:-2222}" -o PasswordAuthentication=no
    ;;
leader)
    hosts=$1
    shift
    slots=${SLOTS:-1}
    n=$(($(echo "$hosts" | tr ',' '\n' | grep -c .) * slots))
    list=$(echo "$hosts" | sed "s/,/:$slots,/g"):$slots
    for h in $(echo "$hosts" | tr ',' ' '); do # they start at the same time
        i=0
        until [ "${h%%.*}" = "$(hostname)" ] || ssh -p "${SSH_PORT:-2222}" "$h" true 2>/dev/null; do
            i=$((i + 1))
            [ $i -lt 150 ] || { echo "ranks: $h does not answer" >&2; exit 1; }
            sleep 2
        done
    done
    exec mpirun --allow-run-as-root -n "$n" --host "$list" \
        --map-by "ppr:$slots:node" --bind-to none \
        --mca plm_rsh_args "-p ${SSH_PORT:-2222}" \
        --mca btl_tcp_if_include "${NETWORK:?as 10.0.0.0/8}" \
        sluice serve --layout "tp=$n" --host 0.0.0.0 --log-json "$@"
    ;;
*)
    echo "ranks: $role: worker or leader" >&2
    exit 2
    ;;
esac
