//! Eight rows of eight floats, turned in registers.

/// Rows of a square.
pub(super) const SIDE: usize = 8;

/// `[row][column]` of a square.
pub(super) type Square = [[f32; SIDE]; SIDE];

/// Swaps rows and columns, in three rounds of shuffles of two registers each.
#[inline(always)]
pub(super) fn transpose(rows: Square) -> Square {
    round::<4>(round::<2>(round::<1>(rows)))
}

/// Swaps, of every two rows that are `STEP` apart, the odd blocks of `STEP` columns of the first with the even ones of
/// the second.
#[inline(always)]
fn round<const STEP: usize>(rows: Square) -> Square {
    let mut turned = rows;
    let mut row = 0;
    while row < SIDE {
        if row & STEP == 0 {
            let (a, b) = (rows[row], rows[row + STEP]);
            let mut low = a;
            let mut high = b;
            let mut column = 0;
            while column < SIDE {
                if column & STEP == 0 {
                    low[column + STEP] = b[column];
                    high[column] = a[column + STEP];
                }
                column += 1;
            }
            turned[row] = low;
            turned[row + STEP] = high;
        }
        row += 1;
    }
    turned
}
