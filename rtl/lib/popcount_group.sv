// Number of set bits of six.
module popcount_group (
    input  logic [5:0] bits_i,
    output logic [2:0] count_o
);
  logic [1:0] low, high;

  assign low = {(bits_i[0] & bits_i[1]) | (bits_i[2] & (bits_i[0] | bits_i[1])), bits_i[0] ^ bits_i[1] ^ bits_i[2]};
  assign high = {(bits_i[3] & bits_i[4]) | (bits_i[5] & (bits_i[3] | bits_i[4])), bits_i[3] ^ bits_i[4] ^ bits_i[5]};
  assign count_o = {1'b0, low} + {1'b0, high};
endmodule
