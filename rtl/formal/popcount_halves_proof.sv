// A count is the sum of the counts of both halves. With `popcount_proof` at a small width, this proves by induction
// that counts of wide maps are right: a direct proof takes too long.
module popcount_halves_proof #(
    parameter int unsigned W = 128
) (
    input logic [W-1:0] map_i
);
  localparam int unsigned HALF = W / 2;

  logic [$clog2(W):0]    count;
  logic [$clog2(HALF):0] low, high;

  popcount #(.W(W)) i_popcount (.map_i(map_i), .count_o(count));
  popcount #(.W(HALF)) i_low (.map_i(map_i[HALF-1:0]), .count_o(low));
  popcount #(.W(HALF)) i_high (.map_i(map_i[W-1:HALF]), .count_o(high));

  always_comb assert (count == {1'b0, low} + {1'b0, high});
endmodule
