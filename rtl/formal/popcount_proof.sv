// The tree counts as many bits as a sum of one bit after the other.
module popcount_proof #(
    parameter int unsigned W = 16
) (
    input logic [W-1:0] map_i
);
  localparam int unsigned B = $clog2(W);

  logic [B:0] count, sum;

  popcount #(.W(W)) i_popcount (.map_i(map_i), .count_o(count));

  always_comb begin
    sum = '0;
    for (int unsigned i = 0; i < W; i++) sum = sum + {{B{1'b0}}, map_i[i]};
    assert (count == sum);
  end
endmodule
