//! Finding C and C++ compilers, and running them on a text: for the tests of the header.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of the header.
pub fn include_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("include")
}

/// The compiler that the cc crate would use, and gcc and clang where they are: at least one, or the test fails.
pub fn compilers(cpp: bool) -> Vec<PathBuf> {
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let found = cc::Build::new()
        .cargo_metadata(false)
        .opt_level(0)
        .host(&triple)
        .target(&triple)
        .cpp(cpp)
        .try_get_compiler();
    let mut all: Vec<PathBuf> = found.iter().map(|tool| tool.path().to_owned()).collect();
    all.extend((if cpp { ["g++", "clang++"] } else { ["gcc", "clang"] }).map(PathBuf::from));
    all.retain(|path| Command::new(path).arg("--version").output().is_ok_and(|out| out.status.success()));
    all.dedup();
    assert!(!all.is_empty(), "no {} compiler was found; install gcc or clang", if cpp { "C++" } else { "C" });
    all
}

/// Compiles a text with all warnings as errors, and returns the program (or object) that came out.
pub fn compile(compiler: &Path, standard: &str, name: &str, text: &str, arguments: &[&str]) -> PathBuf {
    let suffix = if standard.starts_with("c++") { "cpp" } else { "c" };
    let compiler_name = compiler.file_name().unwrap_or_default().to_string_lossy().replace('+', "x");
    let stem = format!("{name}-{compiler_name}-{}", standard.replace('+', "x"));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let source = folder.join(format!("{stem}.{suffix}"));
    let output = folder.join(stem);
    std::fs::write(&source, text).expect("the test's folder is writable");
    let mut command = Command::new(compiler);
    command.arg(format!("-std={standard}")).args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"]);
    command.arg(include_dir()).args(arguments).arg(&source).arg("-o").arg(&output);
    let result = command.output().expect("the compiler was just found");
    let messages = String::from_utf8_lossy(&result.stderr);
    assert!(result.status.success(), "{command:?} failed:\n{messages}");
    output
}
