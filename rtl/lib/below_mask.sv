// Thermometer code: the bits below `count_i` are set. A count of W or more sets all.
module below_mask #(
    parameter int unsigned W = 128
) (
    input  logic [$clog2(W):0] count_i,
    output logic [W-1:0]       mask_o
);
  logic [W-1:0] low;
  assign low = {W{1'b1}} << count_i[$clog2(W)-1:0];
  assign mask_o = count_i[$clog2(W)] ? {W{1'b1}} : ~low;
endmodule
