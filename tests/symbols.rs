//! The shared library exports the documented names and nothing else, and carries the link settings it must.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

/// The shared library that cargo built together with this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own file");
    let library = test.with_file_name("libiouring_engine.so");
    assert!(library.exists(), "{} is not there: cargo builds it with the tests", library.display());
    library
}

fn output(tool: &str, arguments: &[&str]) -> String {
    let library = library();
    let result = Command::new(tool).args(arguments).arg(&library).output();
    let result = result.unwrap_or_else(|e| panic!("{tool} can't be run ({e}); install binutils"));
    assert!(result.status.success(), "{tool}: {}", String::from_utf8_lossy(&result.stderr));
    String::from_utf8(result.stdout).expect("binutils write ASCII")
}

fn exported() -> BTreeSet<String> {
    output("nm", &["-D", "--defined-only", "--format=posix"])
        .lines()
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .collect()
}

fn listed() -> BTreeSet<String> {
    include_str!("symbols.txt").lines().map(str::to_owned).collect()
}

#[test]
fn exactly_the_listed_names_are_exported() {
    let (exported, listed) = (exported(), listed());
    let extra: Vec<_> = exported.difference(&listed).collect();
    let missing: Vec<_> = listed.difference(&exported).collect();
    assert!(
        extra.is_empty() && missing.is_empty(),
        "exported but not in tests/symbols.txt: {extra:?}; in tests/symbols.txt but not exported: {missing:?}"
    );
}

#[test]
fn every_listed_name_is_declared_in_the_header() {
    let header = include_str!("../include/iouring_engine.h");
    for name in listed() {
        assert!(
            header.contains(&format!("{name}(")),
            "{name} is exported, but the header doesn't declare it"
        );
    }
}

#[test]
fn the_library_has_its_soname_and_stays_loaded() {
    let dynamic = output("readelf", &["-d", "-W"]);
    assert!(dynamic.contains("[libiouring_engine.so.0]"), "{dynamic}");
    assert!(dynamic.contains("NODELETE"), "{dynamic}");
}

#[test]
fn the_library_binds_its_own_calls_to_itself() {
    let relocations = output("readelf", &["-r", "-W"]);
    for name in listed() {
        let symbolic = relocations.lines().find(|line| line.split_whitespace().any(|word| word == name));
        assert_eq!(symbolic, None, "a program that defines {name} would take it over");
    }
}

#[test]
fn the_list_is_sorted_and_holds_each_name_once() {
    let sorted: Vec<String> = listed().into_iter().collect();
    assert_eq!(include_str!("symbols.txt").lines().collect::<Vec<_>>(), sorted);
}
