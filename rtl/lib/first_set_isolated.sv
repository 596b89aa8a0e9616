// Position of the first set bit, from bit 0 on: the same function as `first_set`, in another form.
//
// The subtraction of one clears the first set bit and sets all below it, so `map & ~(map - 1)` has that bit alone. Each
// bit of its position is the OR of the map's bits at the positions with this bit. `rtl/formal` proves both forms equal.
module first_set_isolated #(
    parameter int unsigned W = 128
) (
    input  logic [W-1:0]         map_i,
    output logic                 found_o,
    output logic [$clog2(W)-1:0] position_o
);
  localparam int unsigned RESULT_W = $clog2(W);

  logic [W-1:0] first;

  assign first = map_i & ~(map_i - {{W - 1{1'b0}}, 1'b1});

  always_comb begin
    position_o = '0;
    for (int unsigned bit_number = 0; bit_number < W; bit_number++)
      if (first[bit_number]) position_o = position_o | RESULT_W'(bit_number);
  end

  assign found_o = |map_i;
endmodule
