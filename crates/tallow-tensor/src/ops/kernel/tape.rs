//! [`Kernel`]: a pair of closures over slices as an operation on candle's tape.

use candle_core::{
    CpuStorage, CustomOp1, CustomOp2, CustomOp3, Error, Layout, Result, Shape, Storage, Tensor,
};

use crate::trace::{self, Held};

/// What a kernel returns.
pub(crate) type Outcome<T> = tallow_kernels::Result<T>;
/// A gradient for each input, where one is needed.
pub(crate) type Gradients<const N: usize> = [Option<Gradient>; N];

/// The gradient of one input.
pub(crate) enum Gradient {
    /// Its elements.
    Values(Vec<f32>),
    /// The gradient of the output, as it is.
    OfOutput,
}

/// An operation of `N` contiguous f32 inputs, all of which can take a gradient.
pub(crate) struct Kernel<const N: usize, F, B> {
    name: &'static str,
    out: Shape,
    forward: F,
    backward: B,
    /// What a profiler calls it.
    held: Option<Held>,
}

impl<const N: usize, F, B> Kernel<N, F, B>
where
    F: Fn([&[f32]; N], &mut [f32]) -> Outcome<()> + Send + Sync + 'static,
    B: Fn(&Backward<'_, N>) -> Outcome<Gradients<N>> + Send + Sync + 'static,
{
    /// `forward` writes the output, of shape `out`, all of it; `backward` gives the gradients that are needed.
    pub(crate) fn new(name: &'static str, out: &[usize], forward: F, backward: B) -> Self {
        Self {
            name,
            out: Shape::from(out),
            forward,
            backward,
            held: Held::new(),
        }
    }

    fn run_forward(&self, inputs: [(&CpuStorage, &Layout); N]) -> Result<(CpuStorage, Shape)> {
        let mut slices: [&[f32]; N] = [&[]; N];
        for (slice, (storage, layout)) in slices.iter_mut().zip(inputs) {
            *slice = elements(self.name, storage, layout)?;
        }
        let mut out = vec![0f32; self.out.elem_count()];
        (self.forward)(slices, &mut out).map_err(Error::wrap)?;
        Ok((CpuStorage::F32(out), self.out.clone()))
    }

    fn run_backward(
        &self,
        inputs: [&Tensor; N],
        out: &Tensor,
        grad: &Tensor,
    ) -> Result<[Option<Tensor>; N]> {
        let needed = inputs.map(Tensor::track_op);
        let _span = trace::backward(self.name, self.held.as_ref(), &needed);
        let grad = grad.contiguous()?;
        let guards = inputs.map(Tensor::storage_and_layout);
        let (out_guard, out_layout) = out.storage_and_layout();
        let (grad_guard, grad_layout) = grad.storage_and_layout();
        let mut slices: [&[f32]; N] = [&[]; N];
        for (slice, (guard, layout)) in slices.iter_mut().zip(&guards) {
            *slice = stored_elements(self.name, guard, layout)?;
        }
        let gradients = (self.backward)(&Backward {
            inputs: slices,
            out: stored_elements(self.name, &out_guard, out_layout)?,
            grad: stored_elements(self.name, &grad_guard, grad_layout)?,
            needed,
        });
        let mut tensors = [const { None }; N];
        let gradients = gradients.map_err(Error::wrap)?;
        for ((tensor, gradient), input) in tensors.iter_mut().zip(gradients).zip(inputs) {
            *tensor = match gradient {
                None => None,
                Some(Gradient::OfOutput) => Some(grad.clone()),
                Some(Gradient::Values(values)) => {
                    Some(Tensor::from_vec(values, input.shape(), input.device())?)
                }
            };
        }
        Ok(tensors)
    }
}

/// What a backward rule reads.
pub(crate) struct Backward<'a, const N: usize> {
    /// The inputs.
    pub(crate) inputs: [&'a [f32]; N],
    /// The output.
    pub(crate) out: &'a [f32],
    /// The gradient of the output.
    pub(crate) grad: &'a [f32],
    /// Which inputs lead to a variable. candle wants a gradient for each of those; the others' is not worth computing.
    pub(crate) needed: [bool; N],
}

impl<const N: usize> Backward<'_, N> {
    /// The gradient of input `index`, written by `fill`, if it is needed.
    pub(crate) fn gradient(
        &self,
        index: usize,
        fill: impl FnOnce(&mut [f32]) -> Outcome<()>,
    ) -> Outcome<Option<Gradient>> {
        if !self.needed[index] {
            return Ok(None);
        }
        let mut values = vec![0f32; self.inputs[index].len()];
        fill(&mut values)?;
        Ok(Some(Gradient::Values(values)))
    }

    /// The output's gradient, as that of input `index` of the same shape.
    pub(crate) fn unchanged(&self, index: usize) -> Option<Gradient> {
        self.needed[index].then_some(Gradient::OfOutput)
    }

    /// Elements that were computed along with others, as the gradient of input `index`.
    pub(crate) fn values(&self, index: usize, values: Vec<f32>) -> Option<Gradient> {
        self.needed[index].then_some(Gradient::Values(values))
    }
}

pub(super) fn elements<'a>(
    name: &str,
    storage: &'a CpuStorage,
    layout: &Layout,
) -> Result<&'a [f32]> {
    match (storage, layout.contiguous_offsets()) {
        (CpuStorage::F32(values), Some((start, end))) => Ok(&values[start..end]),
        _ => candle_core::bail!("{name}: the kernel was given something else than contiguous f32"),
    }
}

fn stored_elements<'a>(name: &str, storage: &'a Storage, layout: &Layout) -> Result<&'a [f32]> {
    match storage {
        Storage::Cpu(storage) => elements(name, storage, layout),
        _ => candle_core::bail!("{name}: the kernel was given something that is not on the CPU"),
    }
}

impl<F, B> Kernel<1, F, B>
where
    F: Fn([&[f32]; 1], &mut [f32]) -> Outcome<()> + Send + Sync + 'static,
    B: Fn(&Backward<'_, 1>) -> Outcome<Gradients<1>> + Send + Sync + 'static,
{
    /// Runs it, on the tape.
    pub(crate) fn apply(self, [xs]: [&Tensor; 1]) -> Result<Tensor> {
        xs.apply_op1(self)
    }
}

impl<F, B> Kernel<2, F, B>
where
    F: Fn([&[f32]; 2], &mut [f32]) -> Outcome<()> + Send + Sync + 'static,
    B: Fn(&Backward<'_, 2>) -> Outcome<Gradients<2>> + Send + Sync + 'static,
{
    /// Runs it, on the tape.
    pub(crate) fn apply(self, [a, b]: [&Tensor; 2]) -> Result<Tensor> {
        a.apply_op2(b, self)
    }
}

impl<F, B> Kernel<3, F, B>
where
    F: Fn([&[f32]; 3], &mut [f32]) -> Outcome<()> + Send + Sync + 'static,
    B: Fn(&Backward<'_, 3>) -> Outcome<Gradients<3>> + Send + Sync + 'static,
{
    /// Runs it, on the tape.
    pub(crate) fn apply(self, [a, b, c]: [&Tensor; 3]) -> Result<Tensor> {
        a.apply_op3(b, c, self)
    }
}

impl<F, B> CustomOp1 for Kernel<1, F, B>
where
    F: Fn([&[f32]; 1], &mut [f32]) -> Outcome<()> + Send + Sync + 'static,
    B: Fn(&Backward<'_, 1>) -> Outcome<Gradients<1>> + Send + Sync + 'static,
{
    fn name(&self) -> &'static str {
        self.name
    }

    fn cpu_fwd(&self, xs: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        self.run_forward([(xs, layout)])
    }

    fn bwd(&self, xs: &Tensor, out: &Tensor, grad: &Tensor) -> Result<Option<Tensor>> {
        let [dx] = self.run_backward([xs], out, grad)?;
        Ok(dx)
    }
}

impl<F, B> CustomOp2 for Kernel<2, F, B>
where
    F: Fn([&[f32]; 2], &mut [f32]) -> Outcome<()> + Send + Sync + 'static,
    B: Fn(&Backward<'_, 2>) -> Outcome<Gradients<2>> + Send + Sync + 'static,
{
    fn name(&self) -> &'static str {
        self.name
    }

    fn cpu_fwd(
        &self,
        a: &CpuStorage,
        a_layout: &Layout,
        b: &CpuStorage,
        b_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        self.run_forward([(a, a_layout), (b, b_layout)])
    }

    fn bwd(
        &self,
        a: &Tensor,
        b: &Tensor,
        out: &Tensor,
        grad: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let [da, db] = self.run_backward([a, b], out, grad)?;
        Ok((da, db))
    }
}

impl<F, B> CustomOp3 for Kernel<3, F, B>
where
    F: Fn([&[f32]; 3], &mut [f32]) -> Outcome<()> + Send + Sync + 'static,
    B: Fn(&Backward<'_, 3>) -> Outcome<Gradients<3>> + Send + Sync + 'static,
{
    fn name(&self) -> &'static str {
        self.name
    }

    fn cpu_fwd(
        &self,
        a: &CpuStorage,
        a_layout: &Layout,
        b: &CpuStorage,
        b_layout: &Layout,
        c: &CpuStorage,
        c_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        self.run_forward([(a, a_layout), (b, b_layout), (c, c_layout)])
    }

    fn bwd(
        &self,
        a: &Tensor,
        b: &Tensor,
        c: &Tensor,
        out: &Tensor,
        grad: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let [da, db, dc] = self.run_backward([a, b, c], out, grad)?;
        Ok((da, db, dc))
    }
}
