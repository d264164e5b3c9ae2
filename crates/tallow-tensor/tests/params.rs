//! Parameters: creation, order, initial values, freezing.

use candle_core::{DType, Device, Tensor, Var};
use candle_nn::init::{FanInOut, Init, NonLinearity, NormalOrUniform};
use candle_nn::{VarBuilder, VarMap};
use tallow_tensor::Params;
use tallow_tensor::params::{self, Kind};

type Result = std::result::Result<(), Box<dyn std::error::Error>>;

fn message<T>(result: std::result::Result<T, impl std::fmt::Display>) -> String {
    result.err().map(|e| e.to_string()).unwrap_or_default()
}

#[test]
fn entries_stand_in_the_order_of_creation() -> Result {
    let params = Params::f32_cpu();
    let vb = params.builder();
    for name in ["z", "a", "m.weight", "b"] {
        vb.get(2, name)?;
    }
    vb.get(2, "a")?;
    assert_eq!(params.names(), ["z", "a", "m.weight", "b"]);
    let names: Vec<String> = params.iter().map(|entry| entry.name).collect();
    assert_eq!(names, params.names());
    Ok(())
}

#[test]
fn a_name_asked_for_twice_is_one_value() -> Result {
    let params = Params::f32_cpu();
    let first = params.builder().pp("tied").get((2, 3), "weight")?;
    let second = params.builder().pp("tied").get((2, 3), "weight")?;
    assert_eq!(first.id(), second.id());
    assert_eq!(params.len(), 1);
    Ok(())
}

#[test]
fn a_name_asked_for_in_another_form_is_an_error_that_names_both() -> Result {
    let params = Params::f32_cpu();
    let vb = params.builder().pp("fc");
    vb.get((2, 3), "weight")?;
    let shape = message(vb.get((3, 2), "weight"));
    assert!(
        shape.contains("fc.weight") && shape.contains("[3, 2]") && shape.contains("[2, 3]"),
        "{shape}"
    );
    let dtype = message(vb.get_with_hints_dtype((2, 3), "weight", Init::default(), DType::F64));
    assert!(dtype.contains("F64") && dtype.contains("F32"), "{dtype}");
    let kind = message(params::buffer(&vb, (2, 3), "weight", 0.0));
    assert!(
        kind.contains("Buffer") && kind.contains("Trainable"),
        "{kind}"
    );
    Ok(())
}

#[test]
fn initial_values_depend_on_seed_and_name_but_not_on_order() -> Result {
    let values = |seed: u64, names: &[&str]| -> candle_core::Result<Vec<Vec<f32>>> {
        let params = Params::new(seed, DType::F32, &Device::Cpu);
        for name in names {
            params
                .builder()
                .get_with_hints(100, name, candle_nn::init::DEFAULT_KAIMING_NORMAL)?;
        }
        let mut sorted: Vec<_> = params.iter().collect();
        sorted.sort_by(|a, b| a.name.cmp(&b.name));
        sorted.iter().map(|entry| entry.var.to_vec1()).collect()
    };
    let forward = values(42, &["a", "b"])?;
    assert_eq!(forward, values(42, &["b", "a"])?);
    assert_ne!(forward[0], forward[1], "other names, other values");
    assert_ne!(
        forward,
        values(43, &["a", "b"])?,
        "other seeds, other values"
    );
    Ok(())
}

/// Mean, standard deviation, least and greatest.
fn statistics(values: &[f32]) -> [f64; 4] {
    let n = values.len() as f64;
    let mean = values.iter().map(|&x| f64::from(x)).sum::<f64>() / n;
    let variance = values
        .iter()
        .map(|&x| (f64::from(x) - mean).powi(2))
        .sum::<f64>()
        / n;
    let least = values.iter().copied().fold(f32::INFINITY, f32::min);
    let greatest = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    [mean, variance.sqrt(), least.into(), greatest.into()]
}

#[test]
fn initial_values_are_distributed_as_candle_says() -> Result {
    let kaiming = |dist, fan, non_linearity| Init::Kaiming {
        dist,
        fan,
        non_linearity,
    };
    let (normal, uniform) = (NormalOrUniform::Normal, NormalOrUniform::Uniform);
    // Shape [64, 32, 3, 3]: fan in 288, fan out 576. Expected mean and standard deviation by hand.
    let gain = 2f64.sqrt();
    let rows = [
        (Init::Const(0.25), 0.25, 0.0),
        (
            Init::Randn {
                mean: 1.0,
                stdev: 0.5,
            },
            1.0,
            0.5,
        ),
        (Init::Uniform { lo: -1.0, up: 3.0 }, 1.0, 4.0 / 12f64.sqrt()),
        (
            kaiming(normal, FanInOut::FanIn, NonLinearity::ReLU),
            0.0,
            gain / 288f64.sqrt(),
        ),
        (
            kaiming(normal, FanInOut::FanOut, NonLinearity::ReLU),
            0.0,
            gain / 576f64.sqrt(),
        ),
        (
            kaiming(uniform, FanInOut::FanIn, NonLinearity::Linear),
            0.0,
            1.0 / 288f64.sqrt(),
        ),
        (
            kaiming(uniform, FanInOut::FanOut, NonLinearity::Tanh),
            0.0,
            5.0 / 3.0 / 576f64.sqrt(),
        ),
    ];
    for (i, (init, mean, std)) in rows.into_iter().enumerate() {
        let params = Params::f32_cpu();
        let value = params
            .builder()
            .get_with_hints((64, 32, 3, 3), &format!("p{i}"), init)?;
        let values = value.flatten_all()?.to_vec1::<f32>()?;
        let [found_mean, found_std, least, greatest] = statistics(&values);
        let tolerance = 0.02 * std + 1e-6;
        assert!(
            (found_mean - mean).abs() < tolerance,
            "{init:?}: mean {found_mean}, not {mean}"
        );
        assert!(
            (found_std - std).abs() < tolerance,
            "{init:?}: std {found_std}, not {std}"
        );
        if matches!(
            init,
            Init::Uniform { .. }
                | Init::Kaiming {
                    dist: NormalOrUniform::Uniform,
                    ..
                }
        ) {
            let reach = 3f64.sqrt() * std * 1.0001;
            assert!(
                least >= mean - reach && greatest <= mean + reach,
                "{init:?}: {least} to {greatest}"
            );
            assert!(
                greatest - least > 1.99 * 3f64.sqrt() * std,
                "{init:?} doesn't reach its bounds"
            );
        }
    }
    Ok(())
}

#[test]
fn other_element_types_get_the_same_numbers() -> Result {
    let draw = |dtype| -> candle_core::Result<Tensor> {
        let params = Params::new(42, dtype, &Device::Cpu);
        let init = Init::Randn {
            mean: 0.0,
            stdev: 1.0,
        };
        params.builder().get_with_hints(50, "w", init)
    };
    let single = draw(DType::F32)?.to_dtype(DType::F64)?.to_vec1::<f64>()?;
    assert_eq!(draw(DType::F64)?.to_vec1::<f64>()?, single);
    Ok(())
}

#[test]
fn buffers_are_neither_trained_nor_counted() -> Result {
    let params = Params::f32_cpu();
    let vb = params.builder().pp("bn");
    vb.get(4, "weight")?;
    let running = params::buffer(&vb, 4, "running_var", 1.0)?;
    vb.get(4, "bias")?;
    assert_eq!(running.to_vec1::<f32>()?, [1.0; 4]);
    let kinds: Vec<Kind> = params.iter().map(|entry| entry.kind).collect();
    assert_eq!(kinds, [Kind::Trainable, Kind::Buffer, Kind::Trainable]);
    let trained: Vec<String> = params
        .trainable()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(trained, ["bn.weight", "bn.bias"]);
    assert_eq!(params.count(), 8);
    Ok(())
}

#[test]
fn a_failed_buffer_leaves_no_trace_on_the_next_parameter() -> Result {
    let params = Params::f32_cpu();
    let vb = params.builder();
    vb.get(4, "taken")?;
    assert!(params::buffer(&vb, 4, "taken", 0.0).is_err());
    vb.get(4, "next")?;
    assert_eq!(
        params.get("next").map(|entry| entry.kind),
        Some(Kind::Trainable)
    );
    Ok(())
}

#[test]
fn a_buffer_works_with_candles_own_builders() -> Result {
    let map = VarMap::new();
    let vb = VarBuilder::from_varmap(&map, DType::F32, &Device::Cpu);
    let mean = params::buffer(&vb.pp("bn"), 3, "running_mean", 0.5)?;
    assert_eq!(mean.to_vec1::<f32>()?, [0.5; 3]);
    let zeros = VarBuilder::zeros(DType::F32, &Device::Cpu);
    assert_eq!(params::buffer(&zeros, 2, "m", 1.0)?.dims(), [2]);
    Ok(())
}

#[test]
fn freezing_goes_by_segments() -> Result {
    let params = Params::f32_cpu();
    let vb = params.builder();
    let names = [
        "layer1.0.weight",
        "layer1.bias",
        "layer10.weight",
        "layer1",
        "head.layer1.weight",
    ];
    for name in names {
        vb.get(1, name)?;
    }
    params::buffer(&vb, 1, "layer1.running_mean", 0.0)?;

    let left = || -> Vec<String> {
        params
            .trainable()
            .into_iter()
            .map(|(name, _)| name)
            .collect()
    };
    assert_eq!(params.freeze("layer1"), 3);
    assert_eq!(left(), ["layer10.weight", "head.layer1.weight"]);
    assert_eq!(params.unfreeze("layer1.0."), 1);
    assert_eq!(
        left(),
        ["layer1.0.weight", "layer10.weight", "head.layer1.weight"]
    );
    assert_eq!(params.freeze("layer"), 0, "a prefix is whole segments");
    assert_eq!(params.freeze(""), 5);
    assert!(left().is_empty());
    assert_eq!(params.count(), 5, "frozen parameters are parameters");
    Ok(())
}

#[test]
fn clones_share_their_entries() -> Result {
    let params = Params::f32_cpu();
    let other = params.clone();
    other.builder().get(2, "w")?;
    assert_eq!(params.names(), ["w"]);
    Ok(())
}

#[test]
fn copies_do_not_follow_later_training() -> Result {
    let params = Params::f32_cpu();
    params.builder().get(2, "w")?;
    let copies = params.to_tensors()?;
    for (_, var) in params.trainable() {
        var.set(&Tensor::new(&[1f32, 2.0], &Device::Cpu)?)?;
    }
    assert_eq!(copies["w"].to_vec1::<f32>()?, [0.0, 0.0]);
    Ok(())
}

#[test]
fn a_varmap_is_shared_both_ways() -> Result {
    let map = VarMap::new();
    let vb = VarBuilder::from_varmap(&map, DType::F32, &Device::Cpu);
    for name in ["b.weight", "a.running_mean", "a.weight"] {
        vb.get(2, name)?;
    }
    let params = Params::from_varmap(&map);
    assert_eq!(params.names(), ["a.running_mean", "a.weight", "b.weight"]);
    assert_eq!(
        params.get("a.running_mean").map(|e| e.kind),
        Some(Kind::Buffer)
    );
    assert_eq!(params.trainable().len(), 2);

    let set = |var: &Var, v: f32| var.set(&Tensor::new(&[v, v], &Device::Cpu)?);
    set(&params.trainable()[0].1, 5.0)?;
    assert_eq!(vb.get(2, "a.weight")?.to_vec1::<f32>()?, [5.0, 5.0]);

    let back = params.to_varmap();
    assert_eq!(back.all_vars().len(), 3);
    set(&back.all_vars()[0], 7.0)?;
    let sevens = params
        .iter()
        .filter(|e| e.var.to_vec1::<f32>().is_ok_and(|v| v == [7.0, 7.0]));
    assert_eq!(sevens.count(), 1);
    Ok(())
}

#[test]
fn an_unknown_name_without_a_shape_is_an_error_with_a_remedy() {
    let error = message(Params::f32_cpu().builder().pp("fc").get_unchecked("weight"));
    assert!(
        error.contains("fc.weight") && error.contains("shape"),
        "{error}"
    );
}

#[test]
fn names_reserved_for_other_uses_are_passed_over() {
    let parameters = Params::f32_cpu();
    parameters.builder().get(2, "weight").unwrap();
    let value = Tensor::new(&[1f32, 2.0], &Device::Cpu).unwrap();
    let tensors = [
        ("weight".to_string(), value.clone()),
        ("__tallow__.momentum".to_string(), value),
    ];
    let report = parameters
        .load_tensors(&tensors.into(), params::Strict::Yes)
        .unwrap();
    assert_eq!(report.loaded, ["weight"]);
    assert!(report.unexpected.is_empty());
}
