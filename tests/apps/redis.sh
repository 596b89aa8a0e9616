#!/bin/sh
# A Redis server, or a client of it: `redis.sh server PORT`, `redis.sh client HOST PORT`. The client writes and reads
# with ten connections, compares one value, and stops the server.
set -eu
if [ "$1" = server ]; then
    exec redis-server --port "$2" --save '' --appendonly no --protected-mode no --bind 0.0.0.0
fi
redis-benchmark -h "$2" -p "$3" -n 2000 -c 10 -t set,get -q | tr '\r' '\n' | grep 'requests per second'
value=$(seq 1 20000 | tr '\n' ' ')
redis-cli -h "$2" -p "$3" set key "$value" > /dev/null
if [ "$(redis-cli -h "$2" -p "$3" get key)" != "$value" ]; then
    echo "WRONG VALUE"
    exit 1
fi
redis-cli -h "$2" -p "$3" shutdown nosave
echo "every value right"
