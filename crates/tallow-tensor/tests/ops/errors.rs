//! Wrong inputs: an error that names module, operation and what was found; never a panic.

use candle_core::{DType, Device, Result, Tensor};
use tallow_tensor::ops::{
    self, BatchNormArgs, Conv2dConfig, CrossEntropyConfig, Interpolation, Pool2dConfig,
};
use tallow_tensor::scope;

fn zeros(shape: &[usize]) -> Tensor {
    Tensor::zeros(shape, DType::F32, &Device::Cpu).expect("a plain tensor")
}

fn ids(values: &[i64]) -> Tensor {
    Tensor::new(values, &Device::Cpu).expect("a plain tensor")
}

/// What must appear in the message beside the module's path, and the call.
type Row = (&'static [&'static str], fn() -> Result<Tensor>);

fn batch_norm(xs: &Tensor, channels: usize, train: bool) -> Result<Tensor> {
    let plain = zeros(&[channels]);
    let args = BatchNormArgs {
        weight: &plain,
        bias: &plain,
        running_mean: &plain,
        running_var: &plain,
        eps: 1e-5,
        momentum: 0.1,
    };
    ops::batch_norm(xs, &args, train)
}

fn cross_entropy(logits: &[usize], targets: &Tensor) -> Result<Tensor> {
    ops::cross_entropy(&zeros(logits), targets, &CrossEntropyConfig::default())
}

const ROWS: &[Row] = &[
    (&["conv2d", "[2, 4, 8, 8]", "[6, 3, 3, 3]"], || {
        ops::conv2d(
            &zeros(&[2, 4, 8, 8]),
            &zeros(&[6, 3, 3, 3]),
            None,
            &Conv2dConfig::default(),
        )
    }),
    (&["conv2d", "[4, 8, 8]"], || {
        ops::conv2d(
            &zeros(&[4, 8, 8]),
            &zeros(&[6, 4, 3, 3]),
            None,
            &Conv2dConfig::default(),
        )
    }),
    (&["conv2d", "bias", "[5]"], || {
        let bias = zeros(&[5]);
        let (xs, weight) = (zeros(&[1, 4, 8, 8]), zeros(&[6, 4, 3, 3]));
        ops::conv2d(&xs, &weight, Some(&bias), &Conv2dConfig::default())
    }),
    (&["conv2d", "stride"], || {
        let config = Conv2dConfig {
            stride: [0, 1],
            ..Default::default()
        };
        ops::conv2d(&zeros(&[1, 4, 8, 8]), &zeros(&[6, 4, 3, 3]), None, &config)
    }),
    (&["conv2d", "does not fit"], || {
        ops::conv2d(
            &zeros(&[1, 4, 2, 8]),
            &zeros(&[6, 4, 3, 3]),
            None,
            &Conv2dConfig::default(),
        )
    }),
    (&["linear", "[2, 3]", "[4, 5]"], || {
        ops::linear(&zeros(&[2, 3]), &zeros(&[4, 5]), None)
    }),
    (&["matmul", "[2, 3]", "[4, 5]"], || {
        ops::matmul(&zeros(&[2, 3]), &zeros(&[4, 5]))
    }),
    (&["matmul", "two dimensions"], || {
        ops::matmul(&zeros(&[3]), &zeros(&[3, 5]))
    }),
    (&["add", "[2, 3]", "[4]"], || {
        ops::add(&zeros(&[2, 3]), &zeros(&[4]))
    }),
    (&["mul", "f32", "f64"], || {
        ops::mul(&zeros(&[2]), &zeros(&[2]).to_dtype(DType::F64)?)
    }),
    (&["relu", "more than 8 dimensions"], || {
        ops::relu(&zeros(&[1; 9]))
    }),
    (&["expand", "more than 8 dimensions"], || {
        ops::expand(&zeros(&[1]), &[1; 9])
    }),
    (&["relu", "u32"], || {
        ops::relu(&zeros(&[2]).to_dtype(DType::U32)?)
    }),
    (&["batch_norm", "[3]", "[2, 4, 5, 5]"], || {
        batch_norm(&zeros(&[2, 4, 5, 5]), 3, false)
    }),
    (&["batch_norm", "one value a channel"], || {
        batch_norm(&zeros(&[1, 3, 1, 1]), 3, true)
    }),
    (&["batch_norm", "not variables", "params::buffer"], || {
        batch_norm(&zeros(&[2, 3, 1, 1]), 3, true)
    }),
    (&["layer_norm", "[2, 5]", "[4]"], || {
        ops::layer_norm(&zeros(&[2, 5]), &zeros(&[4]), &zeros(&[4]), 1e-5)
    }),
    (&["group_norm", "4 groups", "6 channels"], || {
        ops::group_norm(&zeros(&[2, 6, 3]), &zeros(&[6]), &zeros(&[6]), 4, 1e-5)
    }),
    (&["max_pool2d", "does not fit"], || {
        ops::max_pool2d(&zeros(&[1, 1, 2, 2]), &Pool2dConfig::new(3))
    }),
    (&["avg_pool2d", "half the kernel"], || {
        let config = Pool2dConfig {
            padding: [2, 2],
            ..Pool2dConfig::new(3)
        };
        ops::avg_pool2d(&zeros(&[1, 1, 8, 8]), &config, true)
    }),
    (&["adaptive_avg_pool2d", "[3, 8, 8]"], || {
        ops::adaptive_avg_pool2d(&zeros(&[3, 8, 8]), [1, 1])
    }),
    (&["adaptive_max_pool2d", "output size"], || {
        ops::adaptive_max_pool2d(&zeros(&[1, 3, 8, 8]), [0, 1])
    }),
    (&["softmax", "no dimension 2"], || {
        ops::softmax(&zeros(&[2, 3]), 2)
    }),
    (&["log_softmax", "scalar"], || {
        ops::log_softmax(&zeros(&[]), 0)
    }),
    (&["cross_entropy", "[3]", "[2, 5]"], || {
        cross_entropy(&[2, 5], &ids(&[0, 1, 2]))
    }),
    (&["cross_entropy", "target 1 is class 5", "0..5"], || {
        cross_entropy(&[2, 5], &ids(&[0, 5]))
    }),
    (&["cross_entropy", "target 0 is class -1"], || {
        cross_entropy(&[2, 5], &ids(&[-1, 0]))
    }),
    (&["embedding", "ids holds 4", "0..4"], || {
        ops::embedding(&ids(&[0, 4]), &zeros(&[4, 2]))
    }),
    (&["embedding", "not integers"], || {
        ops::embedding(&zeros(&[2]), &zeros(&[4, 2]))
    }),
    (&["attention", "[1, 2, 3, 4]", "[1, 2, 3, 5]"], || {
        ops::attention(
            &zeros(&[1, 2, 3, 4]),
            &zeros(&[1, 2, 3, 5]),
            &zeros(&[1, 2, 3, 5]),
            1.,
        )
    }),
    (&["interpolate", "output size"], || {
        ops::interpolate(&zeros(&[1, 1, 2, 2]), [0, 4], Interpolation::Nearest)
    }),
    (&["concat", "[2, 3]", "[3, 3]"], || {
        ops::concat(&[&zeros(&[2, 3]), &zeros(&[3, 3])], 1)
    }),
    (&["concat", "0 inputs"], || ops::concat(&[], 1)),
    (&["reshape", "6 elements"], || {
        ops::reshape(&zeros(&[2, 3]), &[4])
    }),
    (&["reshape", "start at an earlier one"], || {
        ops::flatten(&zeros(&[2, 3]), 2)
    }),
    (&["permute", "[0, 0]"], || {
        ops::permute(&zeros(&[2, 3]), &[0, 0])
    }),
    (&["permute", "order of 2 dimensions"], || {
        ops::transpose(&zeros(&[2, 3]), 0, 2)
    }),
    (&["slice", "1..4"], || ops::slice(&zeros(&[2, 3]), 1, 1, 4)),
    (&["slice", "2..1"], || ops::slice(&zeros(&[2, 3]), 1, 2, 1)),
    (&["expand", "[2, 3]"], || {
        ops::expand(&zeros(&[2, 3]), &[4, 3])
    }),
    (&["mean", "no dimension 2"], || {
        ops::mean(&zeros(&[2, 3]), &[2], false)
    }),
    (&["sum", "named twice"], || {
        ops::sum(&zeros(&[2, 3]), &[1, 1], false)
    }),
    (&["sum", "no dimension is named"], || {
        ops::sum(&zeros(&[2, 3]), &[], false)
    }),
];

#[test]
fn a_wrong_call_names_module_operation_and_what_it_found() {
    let _model = scope::enter("layer1");
    let _module = scope::enter("layer1.0.conv1");
    for (words, call) in ROWS {
        let error = call().expect_err(words[0]).to_string();
        assert!(error.contains("layer1.0.conv1"), "{error}");
        for word in *words {
            assert!(error.contains(word), "`{word}` is not in: {error}");
        }
    }
}

#[test]
fn element_types_that_no_operation_takes_are_refused() -> Result<()> {
    let xs = zeros(&[2]).to_dtype(DType::I16)?;
    let error = ops::relu(&xs).expect_err("16-bit integers").to_string();
    assert!(
        error.contains("I16") && error.contains("convert"),
        "{error}"
    );
    Ok(())
}

#[test]
fn an_empty_batch_passes_through_or_is_refused() -> Result<()> {
    let images = zeros(&[0, 3, 8, 8]);
    let weight = zeros(&[4, 3, 3, 3]);
    let pool = Pool2dConfig::new(2);
    let shapes = [
        ops::conv2d(&images, &weight, None, &Conv2dConfig::default()),
        ops::max_pool2d(&images, &pool),
        ops::avg_pool2d(&images, &pool, true),
        ops::adaptive_avg_pool2d(&images, [1, 1]),
        ops::adaptive_max_pool2d(&images, [1, 1]),
        ops::interpolate(&images, [4, 4], Interpolation::Nearest),
        ops::relu(&images),
        ops::add(&images, &images),
        ops::mul_scalar(&images, 2.),
        ops::flatten(&images, 1),
        ops::linear(&zeros(&[0, 5]), &zeros(&[4, 5]), None),
        ops::matmul(&zeros(&[0, 2, 3]), &zeros(&[3, 4])),
        ops::softmax(&zeros(&[0, 5]), 1),
        ops::layer_norm(&zeros(&[0, 5]), &zeros(&[5]), &zeros(&[5]), 1e-5),
        ops::group_norm(&images, &zeros(&[3]), &zeros(&[3]), 3, 1e-5),
        ops::dropout(&images, 0.5, true),
        ops::drop_path(&images, 0.5, true),
        ops::embedding(&ids(&[]), &zeros(&[4, 2])),
        ops::concat(&[&images, &images], 1),
        ops::sum(&images, &[2, 3], false),
        batch_norm(&images, 3, false),
    ];
    // Each gives an empty batch, or says why it can't.
    for (i, result) in shapes.into_iter().enumerate() {
        match result {
            Ok(ys) => assert_eq!(ys.dims()[0], 0, "row {i}"),
            Err(error) => assert!(!error.to_string().is_empty(), "row {i}"),
        }
    }
    let classes = ids(&[]);
    let error = cross_entropy(&[0, 5], &classes).expect_err("the mean of nothing");
    assert!(error.to_string().contains("no samples"), "{error}");
    Ok(())
}
