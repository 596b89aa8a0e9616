// Any bit of a map is set, and two are, as a sum of one bit after the other says.
module some_set_proof #(
    parameter int unsigned W = 128
) (
    input logic [W-1:0] map_i
);
  logic any, two, has_one, has_two;

  some_set #(.W(W)) i_some (.map_i(map_i), .any_o(any), .two_o(two));

  always_comb begin
    has_one = 1'b0;
    has_two = 1'b0;
    for (int unsigned i = 0; i < W; i++) begin
      if (has_one && map_i[i]) has_two = 1'b1;
      if (map_i[i]) has_one = 1'b1;
    end
    assert (any == has_one);
    assert (two == has_two);
  end
endmodule
