//! Learning-rate schedules against the numbers of `torch.optim.lr_scheduler`, and their limits.

use std::collections::BTreeMap;

use tallow_train::{Anneal, LrSchedule};

#[derive(serde::Deserialize)]
struct Golden {
    base: f64,
    rates: BTreeMap<String, Vec<f64>>,
}

fn golden() -> Golden {
    serde_json::from_str(include_str!("../golden/schedules.json")).unwrap()
}

#[test]
fn schedules_give_pytorchs_rates() {
    let steps = 24;
    let linear_cycle = LrSchedule::OneCycle {
        steps,
        warmup_fraction: 0.25,
        anneal: Anneal::Linear,
        initial_divisor: 10.0,
        final_divisor: 100.0,
    };
    let cases = [
        ("step", LrSchedule::step(7, 0.1)),
        ("cosine", LrSchedule::cosine(steps)),
        ("cosine_to", LrSchedule::cosine_to(steps, 0.02)),
        ("one_cycle", LrSchedule::one_cycle(steps)),
        ("one_cycle_linear", linear_cycle),
        (
            "warmup_constant",
            LrSchedule::constant().with_warmup(6, 0.2),
        ),
        ("warmup_step", LrSchedule::step(4, 0.5).with_warmup(5, 0.1)),
        ("warmup_cosine", LrSchedule::cosine(20).with_warmup(5, 0.1)),
    ];
    let golden = golden();
    assert_eq!(
        cases.len(),
        golden.rates.len(),
        "every stored schedule is compared"
    );
    for (name, schedule) in cases {
        schedule.check().unwrap();
        for (step, &expected) in golden.rates[name].iter().enumerate() {
            let rate = schedule.lr(golden.base, step as u64);
            let close = (rate - expected).abs() <= 1e-12 * golden.base;
            assert!(close, "{name}, step {step}: {rate}, PyTorch {expected}");
        }
    }
}

#[test]
fn a_schedule_stays_at_its_last_rate_past_its_end() {
    for schedule in [
        LrSchedule::cosine_to(10, 0.01),
        LrSchedule::one_cycle(10),
        LrSchedule::one_cycle(10).with_warmup(4, 0.5),
    ] {
        let last = schedule.lr(1.0, 14);
        assert_eq!(schedule.lr(1.0, 15), last, "{schedule:?}");
        assert_eq!(schedule.lr(1.0, u64::MAX), last, "{schedule:?}");
        assert!(last < 0.1, "{schedule:?} ends low");
    }
}

#[test]
fn the_shortest_schedules_give_finite_rates() {
    for steps in 1..5 {
        for schedule in [
            LrSchedule::step(steps, 0.1),
            LrSchedule::cosine(steps),
            LrSchedule::one_cycle(steps),
            LrSchedule::constant().with_warmup(steps - 1, 0.0),
        ] {
            for step in 0..6 {
                let rate = schedule.lr(0.5, step);
                assert!(
                    (0.0..=0.5).contains(&rate),
                    "{schedule:?}, step {step}: {rate}"
                );
            }
        }
    }
}

#[test]
fn settings_without_sense_are_refused_by_name() {
    let zero_divisor = LrSchedule::OneCycle {
        steps: 10,
        warmup_fraction: 0.3,
        anneal: Anneal::Cosine,
        initial_divisor: 0.0,
        final_divisor: 1e4,
    };
    let long_rise = LrSchedule::OneCycle {
        steps: 10,
        warmup_fraction: 1.5,
        anneal: Anneal::Cosine,
        initial_divisor: 25.0,
        final_divisor: 1e4,
    };
    let cases = [
        (LrSchedule::step(0, 0.1), "interval of a step schedule"),
        (LrSchedule::step(1, f64::NAN), "gamma"),
        (LrSchedule::cosine(0), "cosine schedule"),
        (LrSchedule::cosine_to(5, -1.0), "last rate"),
        (LrSchedule::one_cycle(0), "one-cycle"),
        (zero_divisor, "divisor"),
        (long_rise, "warm-up fraction"),
        (LrSchedule::constant().with_warmup(3, -0.5), "start factor"),
        (LrSchedule::cosine(0).with_warmup(3, 0.5), "cosine schedule"),
    ];
    for (schedule, part) in cases {
        let message = schedule.check().unwrap_err().to_string();
        assert!(message.contains(part), "{schedule:?}: {message}");
    }
}

#[test]
fn a_schedule_survives_serialization() {
    let schedule = LrSchedule::one_cycle(100).with_warmup(7, 0.1);
    let text = serde_json::to_string(&schedule).unwrap();
    assert_eq!(serde_json::from_str::<LrSchedule>(&text).unwrap(), schedule);
    let unknown = r#"{"schedule":"cosine","steps":3,"min_lr":0.0,"max_lr":1.0}"#;
    assert!(serde_json::from_str::<LrSchedule>(unknown).is_err());
}
