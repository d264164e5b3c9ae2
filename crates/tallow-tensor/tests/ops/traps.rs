//! The known faults of candle 0.11.1 that an operation must not have, each with a test.
