//! What is said about the machine.

use tallow_tensor::environment::{CANDLE, Cuda, Environment};

#[test]
fn candle_is_the_one_of_the_lock_file() {
    let lock = include_str!("../../../Cargo.lock");
    assert!(lock.contains(&format!("name = \"candle-core\"\nversion = \"{CANDLE}\"")));
}

#[test]
fn a_machine_is_described() {
    let here = Environment::detect();
    let text = here.to_string();
    assert!(
        text.contains(&format!("kernels    {}", here.simd)),
        "{text}"
    );
    assert_eq!(
        here.problems()
            .iter()
            .any(|problem| problem.contains("--release")),
        cfg!(debug_assertions)
    );
    let json = serde_json::to_value(&here).unwrap();
    assert_eq!(json["threads"], here.threads);
}

#[test]
fn what_cuda_prints_is_read() {
    let smi = "| NVIDIA-SMI 550.54.15    Driver Version: 550.54.15    CUDA Version: 12.4     |";
    let listed = "NVIDIA H200, 550.54.15\nNVIDIA H200, 550.54.15\n";
    let nvcc = "Cuda compilation tools, release 13.0, V13.0.48\n";
    let cuda = Cuda::parse(smi, listed, nvcc);
    assert_eq!(cuda.devices, ["NVIDIA H200", "NVIDIA H200"]);
    let versions = [&cuda.driver, &cuda.driver_cuda, &cuda.toolkit].map(|text| text.as_deref());
    assert_eq!(versions, [Some("550.54.15"), Some("12.4"), Some("13.0")]);
    assert!(cuda.mismatch().unwrap().contains("update the driver"));
    // A newer minor version of the toolkit runs.
    let fits = Cuda::parse(smi, listed, "release 12.6, V12.6.20");
    assert_eq!(fits.mismatch(), None);
    let nothing = Cuda::parse("", "", "");
    assert_eq!((nothing.mismatch(), nothing.driver_cuda), (None, None));
}
