// The search backwards finds a set bit, and no bit from it on to the head is set.
module last_in_ring_proof #(
    parameter int unsigned W = 128
) (
    input logic [W-1:0]         map_i,
    input logic [$clog2(W)-1:0] head_i
);
  localparam int unsigned B = $clog2(W);

  logic         found;
  logic [B-1:0] position, distance;

  last_in_ring #(.W(W)) i_search (.map_i(map_i), .head_i(head_i), .found_o(found), .position_o(position));
  assign distance = position - head_i;

  always_comb begin
    assert (found == (map_i != '0));
    if (found) begin
      assert (map_i[position]);
      for (int unsigned i = 0; i < W; i++) assert (!map_i[i] || B'(B'(i) - head_i) <= distance);
    end
  end
endmodule
