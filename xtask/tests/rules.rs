//! The workspace keeps its own rules, and the rules notice when it does not.

use std::collections::BTreeSet;

use xtask::layers::{self, Edges};
use xtask::{examples, names, tidy, workspace_root};

const TABLE: &str = "\
| crate | is | uses | never |
|---|---|---|---|
| `tallow-kernels` | compute | - | knows tensors |
| `tallow-tensor` | glue | kernels | knows layers |
| `tallow` | facade | all | code |
";

fn edges(rows: &[(&str, &[&str])]) -> Edges {
    let set = |uses: &[&str]| {
        uses.iter()
            .map(|used| used.to_string())
            .collect::<BTreeSet<_>>()
    };
    rows.iter()
        .map(|(name, uses)| (name.to_string(), set(uses)))
        .collect()
}

#[test]
fn the_workspace_follows_its_layer_table() {
    layers::run(&workspace_root()).unwrap();
}

#[test]
fn the_workspace_is_tidy() {
    tidy::run(&workspace_root()).unwrap();
}

#[test]
fn the_table_is_read_with_all_meaning_every_row_above() {
    let allowed = layers::allowed_edges(TABLE).unwrap();
    assert_eq!(
        allowed,
        edges(&[
            ("tallow-kernels", &[]),
            ("tallow-tensor", &["tallow-kernels"]),
            ("tallow", &["tallow-kernels", "tallow-tensor"]),
        ])
    );
}

#[test]
fn a_row_may_not_use_what_stands_below_it() {
    let upside_down = TABLE.replace("| compute | - |", "| compute | tensor |");
    let error = layers::allowed_edges(&upside_down).unwrap_err().to_string();
    assert!(
        error.contains("tallow-kernels") && error.contains("tallow-tensor"),
        "{error}"
    );
}

#[test]
fn an_edge_outside_the_table_a_missing_row_and_a_missing_crate_are_named() {
    let allowed = layers::allowed_edges(TABLE).unwrap();
    let actual = edges(&[
        ("tallow-kernels", &["tallow-tensor"]),
        ("tallow-tensor", &[]),
        ("tallow-new", &[]),
    ]);
    let faults = layers::compare(&allowed, &actual).join("\n");
    for fragment in [
        "`tallow-kernels` uses `tallow-tensor`",
        "`tallow-new` has no row",
        "row `tallow`",
    ] {
        assert!(faults.contains(fragment), "{fragment} is not in: {faults}");
    }
}

#[test]
fn each_house_rule_fires_on_its_fault() {
    let rows = [
        ("crates/x/src/a.rs", "fn f() {}\n", "//!"),
        ("crates/x/src/a.rs", "//! Head.\nfn f() { } \n", "trailing"),
        ("crates/x/src/a.rs", "//! Head.\n\tfn f() {}\n", "tab"),
        ("crates/x/src/a.rs", "//! Head.\nfn f() {}", "newline"),
        (
            "crates/x/src/a.rs",
            concat!("//! Head.\n// TO", "DO: later\n"),
            "marker",
        ),
        ("crates/x/src/utils.rs", "//! Head.\n", "name"),
        (
            "crates/x/src/a.rs",
            concat!("//! Head.\nfn f() { un", "safe { g() } }\n"),
            "unsafe",
        ),
        (
            "crates/x/src/a.rs",
            concat!("//! Head.\nuse candle_core::", "*;\n"),
            "glob",
        ),
        (
            "README.md",
            concat!("see /wo", "rk/main\n"),
            "path of one machine",
        ),
    ];
    for (path, text, fragment) in rows {
        let faults = tidy::check_text(path, text).join("\n");
        assert!(
            faults.contains(fragment),
            "{path}: {fragment} is not in {faults:?}"
        );
    }
    assert_eq!(
        tidy::check_text("crates/x/src/a.rs", "//! Head.\nfn f() {}\n"),
        Vec::<String>::new()
    );
}

#[test]
fn names_in_documentation_are_paths_between_backticks() {
    let text = "see `tallow::nn::Linear` and tallow::nn\n`Trainer`, `tallow::data::Pipe`\n";
    let expected = [(1, "tallow::nn::Linear"), (2, "tallow::data::Pipe")];
    assert_eq!(names::paths(text), expected);
}

#[test]
fn declared_names_are_told_from_those_that_are_used() {
    let text = "\
pub use a::{
    First, Second,
};
pub(crate) struct Third {
    pub fourth: usize, // and fifth
}
fn sixth() { seventh(eighth) }
";
    let declared = names::declared(text);
    for name in ["First", "Second", "Third", "fourth", "sixth"] {
        assert!(declared.contains(name), "{name}");
    }
    for name in ["fifth", "seventh", "eighth"] {
        assert!(!declared.contains(name), "{name}");
    }
}

#[test]
fn examples_come_with_the_features_they_need() {
    let metadata = serde_json::json!({"packages": [
        {"name": "other", "targets": [{"name": "no", "kind": ["example"]}]},
        {"name": "tallow", "targets": [
            {"name": "tallow", "kind": ["lib"]},
            {"name": "plain", "kind": ["example"]},
            {"name": "many", "kind": ["example"], "required-features": ["mpi"]},
        ]},
    ]});
    let expected = [
        ("plain".to_string(), vec![]),
        ("many".to_string(), vec!["mpi".to_string()]),
    ];
    assert_eq!(examples::names(&metadata), expected);
}
