//! `cargo xtask layers`: the crates use each other only as the table in ARCHITECTURE.md says.
//!
//! The table is the source: a row `| \`tallow-x\` | what it is | kernels, graph | ... |` lists in its
//! third column the crates (without the prefix) that `tallow-x` may depend on, in its library or its build
//! script. Dev-dependencies are free: tests may look at the whole workspace.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::cargo;

/// Crate name to the workspace crates that it may use, or uses.
pub type Edges = BTreeMap<String, BTreeSet<String>>;

const PREFIX: &str = "tallow-";

/// Compares the table with `cargo metadata` and names every edge outside it.
pub fn run(root: &Path) -> Result<()> {
    let page = root.join("ARCHITECTURE.md");
    let text =
        std::fs::read_to_string(&page).with_context(|| format!("reading {}", page.display()))?;
    let allowed = allowed_edges(&text)?;
    let actual = actual_edges(root)?;
    let faults = compare(&allowed, &actual);
    if faults.is_empty() {
        return Ok(());
    }
    bail!(
        "the crates do not follow the layer table:\n  {}",
        faults.join("\n  ")
    )
}

/// Reads the table of layers out of ARCHITECTURE.md.
pub fn allowed_edges(text: &str) -> Result<Edges> {
    let rows = text
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| line.split('|').map(str::trim).collect::<Vec<_>>())
        .filter(|cells| cells.len() >= 5);
    let mut edges = Edges::new();
    let mut all_above = BTreeSet::new();
    for cells in rows {
        let name = cells[1].trim_matches('`').to_string();
        if name != "tallow" && name != "xtask" && !name.starts_with(PREFIX) {
            continue;
        }
        let uses = match cells[3] {
            "-" => BTreeSet::new(),
            "all" => all_above.clone(),
            list => list
                .split(',')
                .map(|used| format!("{PREFIX}{}", used.trim()))
                .collect(),
        };
        if let Some(unknown) = uses.iter().find(|used| !all_above.contains(*used)) {
            bail!("row `{name}` uses `{unknown}`, which does not stand above it in the table");
        }
        all_above.insert(name.clone());
        edges.insert(name, uses);
    }
    if edges.is_empty() {
        bail!("ARCHITECTURE.md holds no table with rows that start with \"| `\"");
    }
    Ok(edges)
}

/// The edges that the manifests really have.
pub fn actual_edges(root: &Path) -> Result<Edges> {
    let output = cargo()
        .args([
            "metadata",
            "--no-deps",
            "--format-version",
            "1",
            "--offline",
        ])
        .current_dir(root)
        .output()?;
    if !output.status.success() {
        bail!(
            "cargo metadata failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"]
        .as_array()
        .context("cargo metadata lists no packages")?;
    let name_of = |value: &Value| value["name"].as_str().unwrap_or_default().to_string();
    let members: BTreeSet<String> = packages.iter().map(name_of).collect();
    let uses = |package: &Value| -> BTreeSet<String> {
        let dependencies = package["dependencies"].as_array().into_iter().flatten();
        dependencies
            .filter(|dependency| dependency["kind"].as_str() != Some("dev"))
            .map(name_of)
            .filter(|name| members.contains(name))
            .collect()
    };
    Ok(packages
        .iter()
        .map(|package| (name_of(package), uses(package)))
        .collect())
}

/// Every difference that matters, in words: an edge outside the table, a crate without a row, a row without a crate.
pub fn compare(allowed: &Edges, actual: &Edges) -> Vec<String> {
    let mut faults = Vec::new();
    for (name, uses) in actual {
        match allowed.get(name) {
            None => faults.push(format!("`{name}` has no row in the table")),
            Some(may_use) => faults.extend(uses.difference(may_use).map(|used| {
                format!("`{name}` uses `{used}`, which its row does not list: move the code, or change the design and its table")
            })),
        }
    }
    let missing = allowed.keys().filter(|name| !actual.contains_key(*name));
    faults.extend(
        missing.map(|name| format!("the table has a row `{name}`, but no such crate exists")),
    );
    faults
}
