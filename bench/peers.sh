#!/usr/bin/env bash
# Builds peers.cc against this library, RocksDB and LevelDB, and measures durable puts of 1, 4, 16 and 64 threads side
# by side. Run by scripts/bench from the folder where its stores may lie; IOE_LIBRARY is the library's folder and
# IOE_ROOT the project's.
set -eu
for header in rocksdb/db.h leveldb/db.h; do
    echo "#include <$header>" | "${CXX:-c++}" -std=c++17 -E -x c++ - >/dev/null 2>&1 && continue
    echo "left out: $header isn't installed; on Debian type: apt-get install librocksdb-dev libleveldb-dev" >&2
    exit 0
done
"${CXX:-c++}" -O2 -std=c++17 -I"$IOE_ROOT/include" -I"$IOE_ROOT/bench" "$IOE_ROOT/bench/peers.cc" -o peers \
    -L"$IOE_LIBRARY" -liouring_engine -lrocksdb -lleveldb -pthread -Wl,-rpath,"$IOE_LIBRARY"
for threads in 1 4 16 64; do
    rm -rf peers-bench.*
    ./peers --threads "$threads" "$@"
done
rm -rf peers-bench.*
