// Set of flows, first in first out: up to four insertions and one removal in a cycle.
//
// Source: Tonic, section 3.1 (active set, ready-to-transmit set). A flow is inserted only while it is not in the set,
// so FLOWS places suffice. FLOWS is a power of two, and at least 8. Four interleaved banks hold the queue: up to four
// insertions, in the order of the ports, go to four consecutive places, which are in four banks.
//
// A removal sees the insertions of the same cycle: `flow_o` of an empty set is the first one inserted.
module flow_set #(
    parameter int unsigned FLOWS = 1024
) (
    input  logic                       clk,
    input  logic                       rst_n,
    input  logic [3:0]                 push_i,
    input  logic [4*$clog2(FLOWS)-1:0] flow_i,
    input  logic                       pop_i,
    output logic                       found_o,
    output logic [$clog2(FLOWS)-1:0]   flow_o
);
  localparam int unsigned F = $clog2(FLOWS);
  localparam int unsigned ROWS = FLOWS / 4;
  localparam int unsigned R = $clog2(ROWS);

  logic [F-1:0]   head_q, tail_q;
  logic [F:0]     count_q;
  logic [2:0]     pushes;
  logic [3:0]     we;
  logic [4*R-1:0] rows;
  logic [4*F-1:0] values, stored;
  logic [F-1:0]   first;
  logic           is_popped;

  always_comb begin
    logic [F-1:0] place;
    pushes = 3'd0;
    we = 4'd0;
    rows = '0;
    values = '0;
    first = flow_i[0+:F];
    for (int unsigned p = 4; p > 0; p--) if (push_i[p-1]) first = flow_i[(p-1)*F+:F];
    for (int unsigned p = 0; p < 4; p++) begin
      place = tail_q + F'(pushes);
      if (push_i[p]) begin
        we[place[1:0]] = 1'b1;
        rows[place[1:0]*R+:R] = place[F-1:2];
        values[place[1:0]*F+:F] = flow_i[p*F+:F];
        pushes = pushes + 3'd1;
      end
    end
  end

  generate
    for (genvar b = 0; b < 4; b++) begin : g_bank
      ram_lut #(.WIDTH(F), .DEPTH(ROWS)) i_bank (
          .clk(clk),
          .we_i(we[b]),
          .waddr_i(rows[b*R+:R]),
          .wdata_i(values[b*F+:F]),
          .raddr_i(head_q[F-1:2]),
          .rdata_o(stored[b*F+:F])
      );
    end
  endgenerate

  assign found_o = (count_q != '0) || (push_i != 4'd0);
  assign flow_o = (count_q != '0) ? stored[head_q[1:0]*F+:F] : first;
  assign is_popped = pop_i && found_o;

  always_ff @(posedge clk) begin
    if (!rst_n) begin
      head_q <= '0;
      tail_q <= '0;
      count_q <= '0;
    end else begin
      head_q <= head_q + F'(is_popped);
      tail_q <= tail_q + F'(pushes);
      count_q <= count_q + (F + 1)'(pushes) - (F + 1)'(is_popped);
    end
  end

`ifndef SYNTHESIS
  // No flow is in the set twice.
  logic [FLOWS-1:0] held_q, held_d;
  logic             is_twice;
  always_comb begin
    held_d = held_q;
    is_twice = 1'b0;
    for (int unsigned p = 0; p < 4; p++) begin
      if (push_i[p]) begin
        is_twice = is_twice || held_d[flow_i[p*F+:F]];
        held_d[flow_i[p*F+:F]] = 1'b1;
      end
    end
    if (is_popped) held_d[flow_o] = 1'b0;
  end
  always_ff @(posedge clk) begin
    held_q <= rst_n ? held_d : '0;
    // Otherwise a flow is inserted twice.
    if (rst_n) assert (!is_twice);
    // Otherwise the set is too full.
    if (rst_n) assert (count_q <= (F + 1)'(FLOWS));
  end
`endif
endmodule
