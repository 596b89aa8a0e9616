// The serial comparison is that of RFC 1982, section 3.2, except that a distance of half the numbers, which the RFC
// leaves undefined, is "not after" both ways.
module serial_after_proof #(
    parameter int unsigned W = 24
) (
    input logic [W-1:0] a_i,
    input logic [W-1:0] b_i
);
  localparam logic [W-1:0] HALF = {1'b1, {W - 1{1'b0}}};

  logic is_after, is_before;

  serial_after #(.W(W)) i_after (.a_i(a_i), .b_i(b_i), .after_o(is_after));
  serial_after #(.W(W)) i_before (.a_i(b_i), .b_i(a_i), .after_o(is_before));

  always_comb begin
    assert (is_after == ((a_i < b_i && b_i - a_i > HALF) || (a_i > b_i && a_i - b_i < HALF)));
    assert (!(is_after && is_before));
    assert (is_after || is_before || a_i == b_i || a_i - b_i == HALF);
  end
endmodule
