//! Who holds memory, and when.

use candle_nn::ModuleT;
use tallow_compile::{Options, compile};
use tallow_nn::SimpleCifar;
use tallow_tensor::ops;

use crate::{builder, images, labels, params, record, turn};

#[test]
fn the_tape_holds_outputs_until_the_backward_pass() {
    let _turn = turn();
    let model = SimpleCifar::new(3, 10, params().builder()).unwrap();
    let x = images((4, 3, 32, 32));
    let profile = record(|| {
        let outputs = model.forward_t(&x, true).unwrap();
        let loss = ops::cross_entropy(&outputs, &labels(4), &Default::default()).unwrap();
        loss.backward().unwrap();
        drop(outputs);
    });
    let memory = &profile.memory;
    // Convolution, norm and activation of the first block, 4 x 64 x 32 x 32 floats each.
    let output = 4 * 64 * 32 * 32 * 4;
    let held: Vec<_> = memory
        .holders
        .iter()
        .take(3)
        .map(|held| (&*held.what, &*held.module, held.bytes))
        .collect();
    assert!(
        held.contains(&("conv2d (on the tape)", "features.0.conv", output)),
        "{held:?}"
    );
    assert!(
        held.contains(&("batch_norm (on the tape)", "features.0.bn", output)),
        "{held:?}"
    );
    let peak = memory.tape.iter().map(|&(_, bytes)| bytes).max().unwrap();
    let at_peak = memory
        .tape
        .iter()
        .find(|&&(time, _)| time == memory.peak_at);
    assert_eq!(at_peak.unwrap().1, peak);
    assert!(peak >= 3 * output);
    // Everything is let go.
    assert_eq!(memory.tape.last().unwrap().1, 0);
}

#[test]
fn plans_hold_their_arena() {
    let _turn = turn();
    let model = SimpleCifar::new(3, 10, params().builder()).unwrap();
    let x = images((4, 3, 32, 32));
    let compiled = compile(&model, &x, Options::default()).unwrap();
    let planned = compiled.metrics().planned_memory;
    let profile = record(|| {
        for _ in 0..3 {
            compiled.forward(&x).unwrap();
        }
    });
    assert_eq!(
        profile
            .memory
            .arena
            .iter()
            .map(|point| point.1)
            .collect::<Vec<_>>(),
        [planned]
    );
    let held = &profile.memory.holders[0];
    assert!(
        held.what.ends_with("(in a plan)") && held.module.starts_with("features.0"),
        "{held:?}"
    );
}

#[test]
fn notes_are_holders_and_the_process_is_sampled() {
    let _turn = turn();
    let profiler = builder().start().unwrap();
    profiler.note_memory("a table of mine", 5);
    profiler.note_memory("a table of mine", 1 << 40);
    let profile = profiler.finish();
    assert_eq!(profile.memory.holders.len(), 1);
    assert_eq!(profile.memory.holders[0].bytes, 1 << 40);
    if cfg!(target_os = "linux") {
        assert!(profile.memory.process_peak().unwrap() > 1 << 20);
    }
}
