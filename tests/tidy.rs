//! Holds the rules of the code base that a machine can hold, as an ordinary test.
//!
//! Which rules, and why each: docs/ARCHITECTURE.md, "Rules held by a test". The checks read text, not syntax trees: a
//! small stripper blanks comments and literals out, and the rest is matched by words. A parser was rejected: it would
//! be the heaviest dependency of the project, for rules that are about lines. What the compiler or clippy holds
//! already (missing docs, a SAFETY comment on every block, unwrap) is checked here only where the rule is wider.
//!
//! Every rule has a planted offence at the end of this file, so that a rule that stopped working fails too.
#![allow(clippy::disallowed_methods, reason = "this test reads the source tree itself")]

use std::fs;
use std::path::{Path, PathBuf};

const MAX_FILE_LINES: usize = 800;
const MAX_FUNCTION_LINES: usize = 70;

/// Layers and their ranks. A layer may use itself and lower ranks; two of one rank never use one another.
const LAYERS: [(&str, u32); 8] = [
    ("base", 0),
    ("ring", 1),
    ("wal", 2),
    ("table", 2),
    ("net", 2),
    ("logwriter", 2),
    ("engine", 3),
    ("ffi", 4),
];

/// Where `unsafe` may stand in the library. Tests, fuzz targets and benches may call the C API, with a stated reason.
const UNSAFE_PLACES: [&str; 6] = [
    "src/ffi/",
    "src/ring/uring/",
    "src/ring/posix/",
    "src/base/list.rs",
    "src/base/memory.rs",
    "src/base/signals.rs",
];

const DOCS: [&str; 5] =
    ["README.md", "docs/ARCHITECTURE.md", "docs/FORMAT.md", "docs/TESTING.md", "include/iouring_engine.h"];

/// A source file: its path from the root, its text, and the text with comments and literals blanked out.
struct Source {
    path: String,
    text: String,
    code: String,
}

impl Source {
    fn new(path: &str, text: &str) -> Self {
        let code = if path.ends_with(".rs") { strip(text) } else { String::new() };
        Source { path: path.to_string(), text: text.to_string(), code }
    }

    fn fault(&self, line: usize, what: &str) -> String {
        format!("{}:{}: {what}", self.path, line + 1)
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every text file of the project, sorted: what a build leaves behind and version control are left out.
fn sources() -> Vec<Source> {
    let mut found = Vec::new();
    collect(&root(), &root(), &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(found.iter().any(|s| s.path == "src/lib.rs"), "the source tree was not found");
    found
}

fn collect(root: &Path, folder: &Path, found: &mut Vec<Source>) {
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable entry").path();
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default().to_string();
        let skipped = ["target", ".git", "build", "__pycache__", "corpus", "artifacts"];
        if skipped.contains(&name.as_str()) || path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            collect(root, &path, found);
        } else if let Ok(text) = fs::read_to_string(&path) {
            let relative = path.strip_prefix(root).expect("below the root").to_string_lossy().into_owned();
            found.push(Source::new(&relative, &text));
        }
    }
}

/// Blanks comments, strings and character literals out; lines and columns stay where they are.
fn strip(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = literal_end(bytes, at);
        if end == at {
            at += 1;
            continue;
        }
        for byte in &mut out[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end;
    }
    String::from_utf8(out).expect("blanking whole literals keeps the text valid")
}

/// Where the comment or literal that starts at `at` ends; `at` itself when none starts there.
fn literal_end(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let before = if at == 0 { b' ' } else { bytes[at - 1] };
    let in_word = before.is_ascii_alphanumeric() || before == b'_';
    if rest.starts_with(b"//") {
        return at + rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
    }
    if rest.starts_with(b"/*") {
        return block_comment_end(bytes, at);
    }
    if !in_word && (rest.starts_with(b"r\"") || rest.starts_with(b"r#") || rest.starts_with(b"br")) {
        let skip = if rest[0] == b'b' { 2 } else { 1 };
        let hashes = rest[skip..].iter().take_while(|b| **b == b'#').count();
        if rest.get(skip + hashes) == Some(&b'"') {
            let close: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
            let body = at + skip + hashes + 1;
            let found = bytes[body..].windows(close.len()).position(|w| w == close);
            return found.map_or(bytes.len(), |p| body + p + close.len());
        }
    }
    match rest[0] {
        b'"' => quoted_end(bytes, at, b'"'),
        b'\'' if rest.get(1) == Some(&b'\\') => quoted_end(bytes, at, b'\''),
        // A lifetime has no closing quote right behind its first character.
        b'\'' => {
            let width = match rest.get(1) {
                Some(first) if *first >= 0xF0 => 4,
                Some(first) if *first >= 0xE0 => 3,
                Some(first) if *first >= 0xC0 => 2,
                _ => 1,
            };
            if rest.get(1 + width) == Some(&b'\'') { at + width + 2 } else { at }
        }
        _ => at,
    }
}

fn block_comment_end(bytes: &[u8], start: usize) -> usize {
    let (mut depth, mut at) = (0, start);
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

fn quoted_end(bytes: &[u8], start: usize, quote: u8) -> usize {
    let mut at = start + 1;
    while at < bytes.len() && bytes[at] != quote {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

/// Positions where `word` stands as a whole word.
fn words(line: &str, word: &str) -> Vec<usize> {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word)
        .filter(|(at, _)| {
            !line[..*at].chars().next_back().is_some_and(part)
                && !line[at + word.len()..].chars().next().is_some_and(part)
        })
        .map(|(at, _)| at)
        .collect()
}

fn rank(layer: &str) -> Option<u32> {
    LAYERS.iter().find(|(name, _)| *name == layer).map(|(_, rank)| *rank)
}

/// The layer that a file of the library belongs to.
fn layer(path: &str) -> Option<&str> {
    let inner = path.strip_prefix("src/")?;
    let first = inner.split('/').next()?;
    let name = first.strip_suffix(".rs").unwrap_or(first);
    rank(name).map(|_| name)
}

/// What a path names below the crate's root: one name, or the heads of a `{…}` group.
fn heads(rest: &str) -> Vec<String> {
    let word = |s: &str| s.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let Some(group) = rest.strip_prefix('{') else { return vec![word(rest)] };
    let (mut found, mut depth, mut fresh) = (Vec::new(), 0, true);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => fresh = true,
            c if fresh && depth == 0 && !c.is_whitespace() => {
                found.push(word(&group[at..]));
                fresh = false;
            }
            _ => {}
        }
    }
    found
}

fn check_layers(source: &Source) -> Vec<String> {
    let Some(own) = layer(&source.path) else { return Vec::new() };
    let own_rank = rank(own).expect("a layer has a rank");
    let mut faults = Vec::new();
    for prefix in ["crate::", "super::", "iouring_engine::"] {
        for (at, _) in source.code.match_indices(prefix) {
            for head in heads(&source.code[at + prefix.len()..]) {
                let allowed = rank(&head).is_none_or(|other| other < own_rank || head == own);
                if !allowed {
                    let line = source.code[..at].matches('\n').count();
                    faults.push(source.fault(line, &format!("layer {own} may not use {head}")));
                }
            }
        }
    }
    faults
}

fn check_length(source: &Source) -> Vec<String> {
    let written = [".rs", ".c", ".h", ".hpp", ".py", ".pyi"].iter().any(|e| source.path.ends_with(e));
    let generated = source.path == "include/iouring_engine.h";
    let lines = source.text.lines().count();
    if written && !generated && lines > MAX_FILE_LINES {
        return vec![source.fault(0, &format!("{lines} lines; a file has at most {MAX_FILE_LINES}"))];
    }
    Vec::new()
}

/// Counts as clippy does: lines between the braces that hold code.
fn check_functions(source: &Source) -> Vec<String> {
    let mut faults = Vec::new();
    for at in words(&source.code, "fn") {
        let Some(open) = source.code[at..].find(['{', ';']).map(|p| at + p) else { continue };
        if source.code.as_bytes()[open] == b';' {
            continue;
        }
        let mut depth = 0;
        let mut end = open;
        for (offset, c) in source.code[open..].char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                end = open + offset;
                break;
            }
        }
        let inner = &source.code[open + 1..end.max(open + 1)];
        let lines = inner.lines().filter(|l| !l.trim().is_empty()).count();
        if lines > MAX_FUNCTION_LINES {
            let line = source.code[..at].matches('\n').count();
            faults.push(
                source.fault(line, &format!("{lines} lines in a function; {MAX_FUNCTION_LINES} at most")),
            );
        }
    }
    faults
}

fn check_head(source: &Source) -> Vec<String> {
    let first = |prefixes: &[&str]| prefixes.iter().any(|p| source.text.starts_with(p));
    let script = source.path.starts_with("scripts/") || source.path == ".ci/run";
    let sound = if source.path.ends_with(".rs") {
        first(&["//!"])
    } else if [".c", ".h", ".hpp"].iter().any(|e| source.path.ends_with(e)) {
        first(&["/*", "//"])
    } else if source.path.ends_with(".py") {
        first(&["\"\"\"", "#!"])
    } else if script {
        source.text.starts_with("#!") && source.text.lines().nth(1).is_some_and(|l| l.starts_with("# "))
    } else {
        true
    };
    if sound { Vec::new() } else { vec![source.fault(0, "the first lines must say what the file is for")] }
}

fn check_unsafe(source: &Source) -> Vec<String> {
    let mut faults = Vec::new();
    let in_library = source.path.starts_with("src/");
    let allowed = !in_library || UNSAFE_PLACES.iter().any(|p| source.path.starts_with(p));
    let dense: String = source.code.chars().filter(|c| !c.is_whitespace()).collect();
    let reasoned = dense.contains("allow(unsafe_code,reason");
    let lines: Vec<&str> = source.text.lines().collect();
    for (number, line) in source.code.lines().enumerate() {
        for at in words(line, "unsafe") {
            if !allowed {
                faults.push(source.fault(number, "unsafe is not allowed in this file"));
            }
            if !in_library && !reasoned {
                faults.push(source.fault(number, "unsafe needs #![allow(unsafe_code, reason = …)]"));
            }
            let what = line[at + "unsafe".len()..].trim_start();
            let claims = what.is_empty() || what.starts_with('{') || what.starts_with("impl");
            let near = &lines[number.saturating_sub(12)..=number];
            if claims && !near.iter().any(|l| l.contains("SAFETY:")) {
                faults.push(source.fault(number, "no SAFETY: line before unsafe"));
            }
        }
    }
    faults
}

fn check_unfinished(source: &Source) -> Vec<String> {
    let mut faults = Vec::new();
    let macros = ["todo!", "unimplemented!", "dbg!"];
    let squeezed = ["allow(dead_code", "allow(unused", "allow(clippy::too_many_lines", "#[ignore]"];
    for (number, line) in source.code.lines().enumerate() {
        for word in macros.iter().filter(|w| line.contains(**w)) {
            faults.push(source.fault(number, &format!("{word} is unfinished work")));
        }
        let dense: String = line.chars().filter(|c| !c.is_whitespace()).collect();
        for word in squeezed.iter().filter(|w| dense.contains(**w)) {
            faults.push(source.fault(number, &format!("{word} hides what should be mended")));
        }
    }
    let marker = ["PLACE", "HOLDER"].concat();
    for (number, line) in source.text.lines().enumerate() {
        if line.contains(&marker) {
            faults.push(source.fault(number, "a file that is still to be written"));
        }
    }
    faults
}

/// Nothing in the project may depend on the machine it was written on.
fn check_places(source: &Source) -> Vec<String> {
    if source.path == "Cargo.lock" {
        return Vec::new();
    }
    let strange = ["/wo_rk/", "/ro_ot/", "/ho_me/"].map(|p| p.replace('_', ""));
    let mut faults = Vec::new();
    for (number, line) in source.text.lines().enumerate() {
        for place in strange.iter().filter(|p| line.contains(p.as_str())) {
            faults.push(source.fault(number, &format!("names a place of one machine: {place}")));
        }
    }
    faults
}

/// Names of the dependencies in a manifest, of every kind.
fn dependencies(manifest: &str) -> Vec<String> {
    let mut inside = false;
    let mut found = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            inside = line.trim_end().ends_with("dependencies]");
        } else if inside && let Some((name, _)) = line.split_once('=') {
            found.push(name.trim().to_string());
        }
    }
    found
}

fn assert_clean(check: fn(&Source) -> Vec<String>) {
    let faults: Vec<String> = sources().iter().flat_map(check).collect();
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn imports_point_downward_only() {
    assert_clean(check_layers);
}

#[test]
fn files_are_short() {
    assert_clean(check_length);
}

#[test]
fn functions_are_short() {
    assert_clean(check_functions);
}

#[test]
fn every_file_says_what_it_is_for() {
    assert_clean(check_head);
}

#[test]
fn unsafe_stands_in_its_places_and_gives_its_reason() {
    assert_clean(check_unsafe);
}

#[test]
fn nothing_is_left_unfinished_or_switched_off() {
    assert_clean(check_unfinished);
}

#[test]
fn no_file_names_a_place_of_one_machine() {
    assert_clean(check_places);
}

#[test]
fn the_documents_exist() {
    for doc in DOCS {
        let text = fs::read_to_string(root().join(doc)).unwrap_or_default();
        assert!(text.lines().count() > 20, "{doc} is missing or nearly empty");
    }
}

#[test]
fn the_architecture_names_every_dependency_and_every_folder() {
    let text = fs::read_to_string(root().join("docs/ARCHITECTURE.md")).unwrap_or_default();
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("the manifest");
    let names = dependencies(&manifest);
    assert!(names.len() > 5, "the manifest was not understood: {names:?}");
    for name in names {
        assert!(text.contains(&format!("| {name} |")), "docs/ARCHITECTURE.md has no line for {name}");
    }
    let mut folders: Vec<String> = sources()
        .iter()
        .filter(|s| s.path.starts_with("src/") && !s.path.contains("/tests/"))
        .filter_map(|s| s.path.rsplit_once('/').map(|(folder, _)| folder.to_string()))
        .collect();
    folders.dedup();
    for folder in folders {
        assert!(text.contains(&format!("{folder}/")), "docs/ARCHITECTURE.md does not mention {folder}/");
    }
}

#[test]
fn the_stripper_blanks_comments_and_literals_only() {
    let text = concat!(
        "let a = \"un//safe\"; // unsafe\nlet b = 'x'; /* unsafe /* nested */ */ ",
        "let c: &'static str = r#\"un\"safe\"#;\nlet d = '\\''; let e = b\"q\\\"\"; done"
    );
    let code = strip(text);
    assert_eq!(code.len(), text.len());
    assert_eq!(code.matches('\n').count(), 2);
    assert!(!code.contains("safe") && !code.contains("nested"));
    for kept in ["let a =", "let b =", "&'static str", "let d =", "done"] {
        assert!(code.contains(kept), "{kept} was lost in {code}");
    }
}

/// One offence per rule: a rule that no longer finds it has stopped working.
#[test]
fn every_rule_finds_its_planted_offence() {
    let long_body = "    x();\n".repeat(MAX_FUNCTION_LINES + 1);
    type Rule = fn(&Source) -> Vec<String>;
    let planted: [(&str, String, Rule); 14] = [
        ("src/wal/a.rs", "use crate::engine::Store;".into(), check_layers),
        ("src/wal/a.rs", "use crate::{base::Error, engine::{a, b}};".into(), check_layers),
        ("src/wal/a.rs", "use super::super::ffi::guard;".into(), check_layers),
        ("src/wal/a.rs", "use crate::net::Conn;".into(), check_layers),
        ("src/wal/a.rs", "//!\n".repeat(MAX_FILE_LINES + 1), check_length),
        ("src/wal/a.rs", format!("fn f() {{\n{long_body}}}"), check_functions),
        ("src/wal/a.rs", "use std::fmt;".into(), check_head),
        ("scripts/a", "set -e".into(), check_head),
        ("src/wal/a.rs", "// SAFETY: none\nunsafe { f() }".into(), check_unsafe),
        ("src/ffi/a.rs", "let x = unsafe { f() };".into(), check_unsafe),
        ("tests/a.rs", "// SAFETY: fine\nunsafe { f() }".into(), check_unsafe),
        ("src/wal/a.rs", ["to", "do!()"].concat(), check_unfinished),
        ("src/wal/a.rs", ["#[allow( dead", "_code)]"].concat(), check_unfinished),
        ("docs/a.md", ["see /ho", "me/someone"].concat(), check_places),
    ];
    for (path, text, check) in planted {
        let source = Source::new(path, &text);
        assert!(!check(&source).is_empty(), "the rule no longer finds: {path}: {text:.60}");
    }
    let sound =
        Source::new("src/engine/a.rs", "//! One.\nuse crate::{base::Error, ring::Io, wal};\nfn f() {}\n");
    for check in [check_layers, check_length, check_functions, check_head, check_unsafe, check_unfinished] {
        assert_eq!(check(&sound), Vec::<String>::new());
    }
}
