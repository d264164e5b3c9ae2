//! The feature `download`, where there is no hub to be reached.
#![cfg(feature = "download")]

use std::process::Command;

use tallow_data::Error;
use tallow_data::datasets::{Name, download};

/// Runs only in a process of its own, which [`without_a_hub_the_error_says_what_to_do`] starts with another
/// environment.
#[test]
#[ignore = "started by another test"]
fn child() {
    for (name, what, reader) in [
        (Name::Mnist, "MNIST", "datasets::mnist::load"),
        (
            Name::FashionMnist,
            "Fashion-MNIST",
            "datasets::fashion_mnist::load",
        ),
        (Name::Cifar10, "CIFAR-10", "datasets::cifar10::load"),
    ] {
        let error = download(name).unwrap_err();
        assert!(matches!(error, Error::Download { .. }), "{error:?}");
        let message = error.to_string();
        assert!(
            message.starts_with(&format!("can't download {what}: ")),
            "{message}"
        );
        assert!(message.ends_with(reader), "{message}");
    }
}

#[test]
fn without_a_hub_the_error_says_what_to_do() {
    let empty = tempfile::tempdir().unwrap();
    let this = std::env::current_exe().unwrap();
    let output = Command::new(this)
        .args(["--exact", "child", "--ignored"])
        .env("HF_ENDPOINT", "http://127.0.0.1:1")
        .env("HF_HOME", empty.path())
        .env_remove("HF_HUB_CACHE")
        .env_remove("HUGGINGFACE_HUB_CACHE")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}"
    );
}
