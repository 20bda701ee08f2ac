#!/usr/bin/env bash
# What the scripts share: compilers, places of what is built, and how C programs are built against the library.
target=${CARGO_TARGET_DIR:-target}
case $target in /*) ;; *) target=$PWD/$target ;; esac
rust_needed=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

first_of() {
    local name
    for name in "$@"; do
        [ -n "$name" ] && command -v "$name" >/dev/null && { echo "$name"; return; }
    done
}
c_compiler() { first_of "${CC:-}" cc gcc clang; }
cxx_compiler() { first_of "${CXX:-}" c++ g++ clang++; }
python_of() { first_of "${PYTHON:-}" python3; }
python_is_recent() {
    [ -n "$(python_of)" ] && "$(python_of)" -c 'import ctypes, sys, unittest; sys.exit(sys.version_info < (3, 9))' 2>/dev/null
}

at_least() { # have needed
    [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

compiles() { # source [option...]: whether a C program compiles, links and runs
    local folder status
    folder=$(mktemp -d) || return 1
    printf '%s\n' "$1" >"$folder/try.c"
    shift
    "$(c_compiler)" "$@" "$folder/try.c" -o "$folder/try" >/dev/null 2>&1 && "$folder/try" >/dev/null 2>&1
    status=$?
    rm -rf "$folder"
    return $status
}

# Builds the release library and puts it, under both names that a linker and a loader ask for, into $library.
library=$target/lib
build_library() {
    cargo build --release --locked || return 1
    mkdir -p "$library"
    ln -sf ../release/libiouring_engine.so "$library/libiouring_engine.so"
    ln -sf ../release/libiouring_engine.so "$library/libiouring_engine.so.0"
}

c_warnings=(-std=c11 -D_GNU_SOURCE -Wall -Wextra -Wpedantic -Werror)
build_c() { # source output [option...]
    local source=$1 output=$2
    shift 2
    "$(c_compiler)" "${c_warnings[@]}" -g -O1 "$@" -Iinclude -Ic-tests "$source" -o "$output" \
        -L"$library" -liouring_engine -Wl,-rpath,"$library" -pthread
}
