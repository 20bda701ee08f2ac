//! Sets the link arguments of the shared library and generates the C header into the build folder.
//!
//! Builds never write into the source tree: `tests/header.rs` compares the committed header with the generated
//! one, and `make header` rewrites it. Only the files of the C boundary are read, so no constant or type of another
//! layer can slip into the header; their order here is the order in the header.

use std::path::Path;

/// The files that declare the C interface.
const SOURCES: [&str; 10] = [
    "src/ffi/status.rs",
    "src/ffi/last_error.rs",
    "src/ffi/log.rs",
    "src/ffi/ring_types.rs",
    "src/ffi/ring.rs",
    "src/ffi/wal_types.rs",
    "src/ffi/wal.rs",
    "src/ffi/engine.rs",
    "src/ffi/view.rs",
    "src/ffi/writebatch.rs",
];

fn main() {
    // The soname carries the major version; the library's own calls stay its own even when an executable defines
    // a function of the same name; threads of ours would outlive an unloaded library.
    for argument in ["-soname,libiouring_engine.so.0", "-Bsymbolic-functions", "-z,nodelete"] {
        println!("cargo::rustc-cdylib-link-arg=-Wl,{argument}");
    }
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=cbindgen.toml");
    let root = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets the manifest's directory");
    let out = std::env::var("OUT_DIR").expect("cargo sets the build folder");
    let config = cbindgen::Config::from_file(Path::new(&root).join("cbindgen.toml"))
        .expect("cbindgen.toml is a configuration of cbindgen");
    let mut builder = cbindgen::Builder::new().with_config(config);
    for source in SOURCES {
        println!("cargo::rerun-if-changed={source}");
        builder = builder.with_src(Path::new(&root).join(source));
    }
    let bindings = builder.generate().expect("the files of the C boundary parse");
    bindings.write_to_file(Path::new(&out).join("iouring_engine.h"));
}
