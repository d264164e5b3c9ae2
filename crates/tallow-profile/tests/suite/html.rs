//! The HTML report: whole in itself, and alive in a browser where there is one.

use std::path::Path;
use std::process::Command;

use tallow_data::Batch;
use tallow_nn::SimpleCifar;
use tallow_profile::{Profile, from_env};
use tallow_train::Trainer;

use crate::{builder, images, labels, params, record, turn};

fn training() -> Profile {
    let _turn = turn();
    let batch = Batch::new(images((4, 3, 16, 16)), labels(4)).unwrap();
    let data = vec![batch; 5];
    let params = params();
    let model = SimpleCifar::new(3, 10, params.builder()).unwrap();
    let profiler = builder().start().unwrap();
    let trainer = Trainer::builder(model, params).hook(Box::new(profiler.hook()));
    trainer.build().unwrap().fit(&data, None).unwrap();
    profiler.finish()
}

const CHARTS: [&str; 6] = ["parts", "steps", "operations", "memory", "table", "flame"];

#[test]
fn the_report_is_whole_in_itself() {
    let _turn = turn();
    let page = training().to_html();
    for chart in CHARTS {
        assert!(page.contains(&format!("data-chart=\"{chart}\"")), "{chart}");
    }
    // Nothing is fetched. The flame graph's own script names addresses in its comments.
    let (ours, _) = page.split_once("data-chart=\"flame\"").unwrap();
    assert!(!ours.contains("http"));
    for loads in ["<link", "src=\"", "@import", "fetch(", "XMLHttpRequest"] {
        assert!(!page.contains(loads), "{loads}");
    }
    assert!(page.contains("5 steps") && page.contains("optimizer state"));
}

#[test]
fn a_report_of_nothing_is_a_page_as_well() {
    let _turn = turn();
    let page = record(|| {}).to_html();
    assert!(page.contains("Nothing holds it up"));
}

#[test]
fn names_are_escaped() {
    let _turn = turn();
    let profile = record(|| {
        let _module = tallow_tensor::scope::enter("<script>alert(\"x\")</script>");
        tallow_tensor::ops::relu(&images((1, 1, 64, 64))).unwrap();
    });
    let page = profile.to_html();
    assert!(!page.contains("<script>alert"));
    assert!(page.contains("&lt;script&gt;alert"));
}

#[test]
fn a_folder_gets_all_reports() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let within = folder.path().join("a/b");
    training().write_to(&within).unwrap();
    for file in ["report.html", "trace.json", "flame.svg", "summary.txt"] {
        assert!(within.join(file).metadata().unwrap().len() > 100, "{file}");
    }
    assert_eq!(std::fs::read_dir(&within).unwrap().count(), 4);
}

#[test]
fn without_the_variable_nothing_is_profiled() {
    let _turn = turn();
    assert!(from_env().unwrap().profiler().is_none());
    assert!(!tallow_tensor::trace::is_on());
}

/// What a browser makes of a page.
fn dump(browser: &str, page: &Path) -> Option<String> {
    let profile = tempfile::tempdir().unwrap();
    let output = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
        ])
        .args([
            "--host-resolver-rules=MAP * ~NOTFOUND",
            "--virtual-time-budget=10000",
            "--dump-dom",
        ])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("file://{}", page.display()))
        .output()
        .ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn a_browser_draws_the_report() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("report.html");
    training().write_html(&page).unwrap();
    let browsers = ["chromium", "chromium-browser", "google-chrome"];
    let Some(dom) = browsers.iter().find_map(|browser| dump(browser, &page)) else {
        eprintln!(
            "skipped: no {}; install chromium to check the report in a browser",
            browsers.join(", ")
        );
        return;
    };
    // Set by the last line of the page's script, after it has gone through all tables.
    assert!(
        dom.contains("data-ready=\"true\""),
        "{}",
        &dom[..dom.len().min(2000)]
    );
    for chart in CHARTS {
        assert!(dom.contains(&format!("data-chart=\"{chart}\"")), "{chart}");
    }
    assert!(dom.contains("show all rows"));
}
