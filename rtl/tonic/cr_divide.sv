// The number of cycles after which a flow that lacks `lack_i + 1` bytes of credit has them.
//
// Source: Tonic, section 4 and appendix B; the model is `cycles_for` of crates/rnic-tonic/src/cr/rate.rs. The rate's
// prefixes are bytes in 1, 16, 256, 4096 and 65536 cycles; each gives a time that is exact or too long, so the smallest
// is taken. Prefixes of more than 12 bits are not used.
//
// Latency: 5 cycles, initiation interval 1. `lack_i` is one less than the bytes that are lacking. `delay_o` is counted
// from the cycle of the output: the cycles of the division are subtracted; it is at least 1, and at most MOST.
module cr_divide #(
    parameter int unsigned F = 10,
    parameter int unsigned MOST = 2045 * 1024
) (
    input  logic         clk,
    input  logic         rst_n,
    input  logic         valid_i,
    input  logic [F-1:0] flow_i,
    input  logic [13:0]  lack_i,
    input  logic [22:0]  rate_i,
    output logic         valid_o,
    output logic [F-1:0] flow_o,
    output logic [20:0]  delay_o
);
  // Division of one less, plus one, is division rounded up. 5, 5 and 4 bits of the quotients in the stages.
  localparam int unsigned Q = 14;
  localparam int unsigned D = 12;

  logic [4:0]     valid_q;
  logic [5*F-1:0] flow_q;
  logic [22:0]    rate_q, rate2_q, rate3_q, rate4_q;
  logic [13:0]    dividend_q;
  // Remainder above the quotient, one for each prefix.
  logic [5*(D+Q)-1:0] two_d, three_d, four_d, two_q, three_q, four_q, one;

  function automatic logic [D-1:0] prefix(input logic [22:0] rate, input int unsigned k);
    // A prefix that is not used divides by the largest number; its quotient is not looked at.
    case (k)
      0: prefix = {5'd0, rate[22:16]};
      1: prefix = {1'b0, rate[22:12]};
      2: prefix = rate[19:8];
      3: prefix = rate[15:4];
      default: prefix = rate[11:0];
    endcase
  endfunction

  function automatic logic is_usable(input logic [22:0] rate, input int unsigned k);
    case (k)
      0: is_usable = rate[22:16] != 7'd0;
      1: is_usable = rate[22:12] != 11'd0;
      2: is_usable = rate[22:20] == 3'd0 && rate[19:8] != 12'd0;
      3: is_usable = rate[22:16] == 7'd0 && rate[15:4] != 12'd0;
      default: is_usable = rate[22:12] == 11'd0 && rate[11:0] != 12'd0;
    endcase
  endfunction

  function automatic logic [D+Q-1:0] divide(
      input logic [D+Q-1:0] from, input logic [D-1:0] by, input int unsigned bits);
    logic [D+Q-1:0] value;
    logic [D:0]     high;
    value = from;
    for (int unsigned b = 0; b < 5; b++) begin
      if (b < bits) begin
        high = value[D+Q-1:Q-1];
        if (high >= {1'b0, by}) begin
          high = high - {1'b0, by};
          value = {high[D-1:0], value[Q-2:0], 1'b1};
        end else begin
          value = {high[D-1:0], value[Q-2:0], 1'b0};
        end
      end
    end
    divide = value;
  endfunction

  always_comb begin
    for (int unsigned k = 0; k < 5; k++) begin
      one[k*(D+Q)+:D+Q] = {12'd0, dividend_q};
      two_d[k*(D+Q)+:D+Q] = divide(one[k*(D+Q)+:D+Q], prefix(rate_q, k), 5);
      three_d[k*(D+Q)+:D+Q] = divide(two_q[k*(D+Q)+:D+Q], prefix(rate2_q, k), 5);
      four_d[k*(D+Q)+:D+Q] = divide(three_q[k*(D+Q)+:D+Q], prefix(rate3_q, k), 4);
    end
  end

  logic [30:0] cycles, best;
  logic [20:0] delay_d;
  logic        found;
  always_comb begin
    found = 1'b0;
    best = 31'd0;
    cycles = 31'd0;
    for (int unsigned k = 0; k < 5; k++) begin
      cycles = (31'(four_q[k*(D+Q)+:Q]) + 31'd1) << (4 * k);
      if (is_usable(rate4_q, k) && (!found || cycles < best)) begin
        found = 1'b1;
        best = cycles;
      end
    end
    if (!found) best = 31'(MOST);
    if (best <= 31'd5) delay_d = 21'd1;
    else if (best > 31'(MOST + 5)) delay_d = 21'(MOST);
    else delay_d = 21'(best - 31'd5);
  end

  assign valid_o = valid_q[4];
  assign flow_o = flow_q[4*F+:F];

  always_ff @(posedge clk) begin
    valid_q <= rst_n ? {valid_q[3:0], valid_i} : 5'd0;
    flow_q <= {flow_q[4*F-1:0], flow_i};
    delay_o <= delay_d;
    dividend_q <= lack_i;
    rate_q <= rate_i;
    rate2_q <= rate_q;
    rate3_q <= rate2_q;
    rate4_q <= rate3_q;
    two_q <= two_d;
    three_q <= three_d;
    four_q <= four_d;
  end
endmodule
