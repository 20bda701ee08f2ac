//! The committed header is the one the sources give, and every C and C++ compiler at hand takes it.
#![allow(clippy::disallowed_methods, reason = "this test writes small files for compilers")]

mod c_compiler;

use c_compiler::{compile, compilers};

const GENERATED: &str = include_str!(concat!(env!("OUT_DIR"), "/iouring_engine.h"));
const COMMITTED: &str = include_str!("../include/iouring_engine.h");

#[test]
fn the_committed_header_is_the_generated_one() {
    if let Some((number, (committed, generated))) =
        COMMITTED.lines().zip(GENERATED.lines()).enumerate().find(|(_, (a, b))| a != b)
    {
        panic!(
            "include/iouring_engine.h is stale at line {}; run `make header`\ncommitted: {committed}\ngenerated: {generated}",
            number + 1
        );
    }
    assert_eq!(COMMITTED.len(), GENERATED.len(), "include/iouring_engine.h is stale; run `make header`");
}

#[test]
fn the_header_is_plain_text_of_moderate_width() {
    assert!(COMMITTED.is_ascii(), "the header is ASCII, so that every editor and compiler reads it");
    for (number, line) in COMMITTED.lines().enumerate() {
        assert!(line.len() <= 120 && line.trim_end() == line, "line {}: {line}", number + 1);
    }
}

/// Includes the header twice, takes every function's address, and makes every struct.
fn program() -> String {
    let mut text = String::from("#include \"iouring_engine.h\"\n#include \"iouring_engine.h\"\n");
    text.push_str("typedef void (*any)(void);\nextern any all[];\nany all[] = {\n");
    for name in functions() {
        text.push_str(&format!("    (any){name},\n"));
    }
    text.push_str("};\nint main(void) { return IOE_OK; }\n");
    text
}

/// The functions that the header declares.
fn functions() -> Vec<&'static str> {
    let declared = COMMITTED.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()));
    let names: Vec<&str> = declared
        .filter(|line| !line.starts_with("typedef"))
        .filter_map(|line| line.split_once('(')?.0.rsplit([' ', '*']).next())
        .collect();
    assert!(names.contains(&"ioe_strerror"), "{names:?}");
    names
}

#[test]
fn the_header_compiles_as_c_without_a_warning() {
    for compiler in compilers(false) {
        for standard in ["c99", "c11"] {
            compile(&compiler, standard, "header", &program(), &["-c"]);
        }
    }
}

#[test]
fn the_header_compiles_as_cpp_without_a_warning() {
    for compiler in compilers(true) {
        for standard in ["c++11", "c++17"] {
            compile(&compiler, standard, "header", &program(), &["-c"]);
        }
    }
}
