//! The intermediate representation: operations, graphs, shapes, FLOPs.
