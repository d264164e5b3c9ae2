//! Composable data pipes and local image data sets.
