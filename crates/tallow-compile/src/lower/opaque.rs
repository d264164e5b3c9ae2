//! Modules that run as they are.

use tallow_graph::op::Opaque;

use super::{Fault, Io, Lowered, Site};
use crate::Result;
use crate::eager::Modules;

pub(super) fn forward(site: &Site<'_>, op: &Opaque, modules: &Modules) -> Result<Lowered> {
    check(site, op, modules)?;
    let (modules, module) = (modules.clone(), op.module);
    let ty = site.inputs[0].clone();
    Ok(as_it_is(move |io| {
        let x = io.reads.first().copied();
        match x {
            Some(x) => modules[module].forward(x, &ty, io.out),
            None => Ok(()),
        }
    }))
}

/// From dy, and the run that the module keeps.
pub(super) fn backward(site: &Site<'_>, op: &Opaque, modules: &Modules) -> Result<Lowered> {
    check(site, op, modules)?;
    let (modules, module) = (modules.clone(), op.module);
    Ok(as_it_is(move |io| {
        modules[module].backward(io.floats(0), io.out)
    }))
}

fn as_it_is(run: impl Fn(&mut Io<'_>) -> Result<()> + Send + Sync + 'static) -> Lowered {
    Lowered {
        run: Box::new(move |io| run(io).map_err(Fault::Other)),
        in_place: &[],
        pack: None,
    }
}

fn check(site: &Site<'_>, op: &Opaque, modules: &Modules) -> Result<()> {
    if op.module < modules.len() && !site.inputs.is_empty() {
        return Ok(());
    }
    Err(site.unsupported(
        "stands for a module that is not at hand",
        "compile the model itself, not its graph",
    ))
}
