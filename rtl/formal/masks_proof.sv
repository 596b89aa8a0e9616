// `below_mask` and `range_mask` have the bits that their definitions name, bit by bit.
module masks_proof #(
    parameter int unsigned W = 128
) (
    input logic [$clog2(W)-1:0] from_i,
    input logic [$clog2(W):0]   count_i
);
  localparam int unsigned B = $clog2(W);

  logic [W-1:0] below, in_range;

  below_mask #(.W(W)) i_below (.count_i(count_i), .mask_o(below));
  range_mask #(.W(W)) i_range (.from_i(from_i), .count_i(count_i), .mask_o(in_range));

  always_comb begin
    for (int unsigned i = 0; i < W; i++) begin
      assert (below[i] == (i < 32'(count_i)));
      assert (in_range[i] == ({1'b0, B'(B'(i) - from_i)} < count_i));
    end
  end
endmodule
