use tallow_data::transform::pipeline;

fn main() {
    let _ = pipeline().to_tensor().resize(224);
}
