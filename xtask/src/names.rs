//! Names in documentation: every path `tallow::module::Name` between backticks is declared in the sources of its crate.
//!
//! A word is taken for declared where a keyword such as `fn` stands before it, or where it is the first word of a line, as variants
//! and fields are, or stands in a `pub use`. That finds what was renamed or removed, which is all that it is for.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use anyhow::{Context, Result};

/// The pages that are checked.
const PAGES: &[&str] = &["docs/coming-from-pytorch.md"];

const KEYWORDS: &[&str] = &[
    "const",
    "enum",
    "fn",
    "macro_rules",
    "mod",
    "static",
    "struct",
    "trait",
    "type",
];

/// The faults of all pages.
pub fn check(root: &Path) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for page in PAGES {
        let mut declared = HashMap::new();
        let text = std::fs::read_to_string(root.join(page)).with_context(|| page.to_string())?;
        for (line, path) in paths(&text) {
            let mut parts = path.split("::").skip(1);
            let module = parts.next().unwrap_or_default();
            if !declared.contains_key(module) {
                let words = declared_in(&root.join(sources(module)))?;
                declared.insert(module, words);
            }
            let words = &declared[module];
            if let Some(unknown) = parts.find(|part| !words.contains(*part)) {
                let known = if words.is_empty() { "crate" } else { "name" };
                faults.push(format!(
                    "{page}:{line}: `{path}`: there is no such {known}, `{unknown}`"
                ));
            }
        }
    }
    Ok(faults)
}

/// Where the sources of a module of the facade lie.
fn sources(module: &str) -> String {
    match module {
        "prelude" => "crates/tallow/src".into(),
        module => format!("crates/tallow-{module}/src"),
    }
}

/// Paths between backticks, with the numbers of their lines.
pub fn paths(text: &str) -> Vec<(usize, &str)> {
    let lines = text.lines().enumerate();
    let quoted = lines.flat_map(|(index, line)| {
        let parts = line.split('`').skip(1).step_by(2);
        parts.map(move |part| (index + 1, part))
    });
    quoted
        .filter(|(_, part)| part.starts_with("tallow::"))
        .collect()
}

/// What the files under a folder declare; nothing if it isn't there.
fn declared_in(folder: &Path) -> Result<HashSet<String>> {
    let mut words = HashSet::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let Ok(listing) = std::fs::read_dir(&folder) else {
            continue;
        };
        for entry in listing {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                words.extend(declared(&std::fs::read_to_string(&path)?));
            }
        }
    }
    Ok(words)
}

/// What a source file declares.
pub fn declared(text: &str) -> HashSet<String> {
    let mut words = HashSet::new();
    let mut in_use = false;
    for line in text.lines() {
        let code = line.split("//").next().unwrap_or_default();
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let tokens = code.split(|c| !is_word(c)).filter(|t| !t.is_empty());
        let tokens: Vec<&str> = tokens.collect();
        in_use |= tokens.starts_with(&["pub", "use"]);
        let first = tokens.iter().find(|token| **token != "pub");
        words.extend(first.map(ToString::to_string));
        for pair in tokens.windows(2) {
            if in_use || KEYWORDS.contains(&pair[0]) {
                words.insert(pair[1].to_string());
            }
        }
        in_use &= !code.contains(';');
    }
    words
}
