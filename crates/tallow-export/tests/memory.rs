//! Loading copies no weights: the memory of the process shows it. Alone in its file, since it looks at the whole process.

#![cfg(target_os = "linux")]

mod common;

use candle_nn::{Module, ModuleT};
use common::noise;
use tallow_compile::Options;
use tallow_export::{FreezeOptions, Program};
use tallow_nn::Linear;
use tallow_tensor::Params;

/// Memory of the process that no file stands behind, in bytes.
fn anonymous() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1));
    1024 * kilobytes.unwrap().parse::<u64>().unwrap()
}

struct Wide(Vec<Linear>);

impl ModuleT for Wide {
    fn forward_t(
        &self,
        xs: &candle_core::Tensor,
        _train: bool,
    ) -> candle_core::Result<candle_core::Tensor> {
        self.0
            .iter()
            .try_fold(xs.clone(), |xs, layer| layer.forward(&xs))
    }
}

#[test]
fn loading_and_running_copies_no_weights() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let xs = noise(&[1, 2048], 1);
    {
        let params = Params::f32_cpu();
        let layers = (0..4).map(|i| Linear::new(2048, 2048, params.builder().pp(i.to_string())));
        let model = Wide(layers.collect::<Result<_, _>>().unwrap());
        let program = FreezeOptions::new().params(&params).freeze(&model, &xs);
        program.unwrap().save(&path).unwrap();
    }
    let weights = 4 * 2048 * 2048 * 4;
    assert!(std::fs::metadata(&path).unwrap().len() > weights);

    let before = anonymous();
    let program = Program::load(&path).unwrap();
    let runner = program.compile(Options::default()).unwrap();
    let ys = runner.forward(&xs).unwrap();
    assert_eq!(ys.dims(), [1, 2048]);
    let grown = anonymous().saturating_sub(before);
    assert!(
        grown < weights / 4,
        "{grown} bytes for {weights} of weights"
    );
}
