// A map with one bit at `position_i`, or none when `enable_i` is low; W is a power of two, and at least 4.
//
// Both halves of the position are decoded on their own, and each bit of the map combines two of their bits.
module one_hot #(
    parameter int unsigned W = 128
) (
    input  logic                 enable_i,
    input  logic [$clog2(W)-1:0] position_i,
    output logic [W-1:0]         map_o
);
  localparam int unsigned B = $clog2(W);
  localparam int unsigned LOW_B = B / 2;
  localparam int unsigned HIGH_B = B - LOW_B;

  logic [2**LOW_B-1:0]  low;
  logic [2**HIGH_B-1:0] high;

  always_comb begin
    for (int unsigned i = 0; i < 2 ** LOW_B; i++) low[i] = position_i[LOW_B-1:0] == LOW_B'(i);
    for (int unsigned i = 0; i < 2 ** HIGH_B; i++) high[i] = enable_i && position_i[B-1:LOW_B] == HIGH_B'(i);
    for (int unsigned i = 0; i < W; i++) map_o[i] = high[i/2**LOW_B] && low[i%2**LOW_B];
  end
endmodule
