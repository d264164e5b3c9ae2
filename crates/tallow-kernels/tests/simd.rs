//! The level is what the CPU has, capped, and can be overridden.

use tallow_kernels::Error;
use tallow_kernels::simd::{Level, level, with_level};

const LEVELS: [Level; 4] = [
    Level::Portable,
    Level::Avx2,
    Level::Avx512,
    Level::Avx512Bf16,
];

#[test]
fn an_override_never_exceeds_the_machine_and_ends_with_its_scope() {
    let before = level();
    for asked in LEVELS {
        let got = with_level(asked, level);
        assert_eq!(got, asked.min(Level::detected()));
    }
    assert_eq!(level(), before);
    assert!(std::panic::catch_unwind(|| with_level(Level::Portable, || panic!("inside"))).is_err());
    assert_eq!(level(), before);
}

#[test]
fn names_round_trip_and_a_wrong_one_is_an_error_that_lists_them() {
    for level in LEVELS {
        assert_eq!(level.to_string().parse::<Level>().unwrap(), level);
    }
    let error = "sse9".parse::<Level>().unwrap_err();
    assert_eq!(
        error,
        Error::UnknownLevel {
            found: "sse9".into()
        }
    );
    assert!(
        error
            .to_string()
            .contains("portable, avx2, avx512 or avx512bf16")
    );
}

/// Not a test of its own: prints the level for the test below, which runs it in another process.
#[test]
fn reports_the_level() {
    println!("level {}", level());
}

#[test]
fn the_environment_caps_the_level_and_an_unknown_word_does_not() {
    for (word, expected) in [
        ("portable", Level::Portable),
        ("avx2", Level::Avx2.min(Level::detected())),
        ("avx512", Level::Avx512.min(Level::detected())),
        ("avx512bf16", Level::detected()),
        ("sse9", Level::detected()),
    ] {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "reports_the_level", "--nocapture"])
            .env("TALLOW_SIMD", word)
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.contains(&format!("level {expected}\n")),
            "{word}: {output}"
        );
    }
}
