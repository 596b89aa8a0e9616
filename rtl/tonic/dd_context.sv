// State of all flows in data delivery: fields in stores by the modules that write them.
//
// Source: Tonic, section 4 (two groups of memories). A field is in a store whose write ports are those of its writers:
// a store of one writer is a plain memory, others have a bank for each writer (`ram_mwnr`). Read ports whose data is
// not used are removed by synthesis.
//
// Modules, in the order of all vectors here, lowest first: Segment Generation and commands (gen), second stage of
// Incoming (inc), Periodic Updates (per), Segment Transmitted (dep), first stage of Incoming (ack); then, with DEBUG, a
// reader. Each presents the flow that it processes in the next cycle; what inc and per read is for the program, a cycle
// before they write.
//
//   store  fields                                                       writers
//   gen    next, limit, has_short_last, total_sent                      gen
//   ack    start, acked                                                 gen, ack
//   rtx    repeats_low, repeats_high                                    gen, ack
//   set    size, timer, rate, the program's state                       gen, inc, per
//   mark   marked, idle, timer_on, expiry                               gen, inc, per, ack
//   hold   outstanding, back_pressured                                  gen, dep
//
// With WHOLE_GROUPS there are two stores instead, as in the paper: the window, with four write ports and four read ports
// (`ram_4w4r`), and the duty with the program's state. The latter has five of each, one more than in the paper: here the
// first stage of Incoming changes marks and timer in its own cycle. `whole_i` says which modules write; those that do
// have the whole state of their flow.
//
// `in_use` has a register for each flow, because it alone has a meaning before the first command.
module dd_context #(
    parameter int unsigned FLOWS = 1024,
    parameter int unsigned WHOLE_GROUPS = 0,
    parameter int unsigned DEBUG = 0
) (
    input  logic                                    clk,
    input  logic                                    rst_n,
    input  logic [6*$clog2(FLOWS)-1:0]              next_flow_i,
    input  logic [5*$clog2(FLOWS)-1:0]              flow_i,
    input  logic                                    add_i,
    input  logic                                    remove_i,
    input  logic [0:0]                              we_gen_i,
    input  logic [1:0]                              we_ack_i,
    input  logic [1:0]                              we_rtx_i,
    input  logic [2:0]                              we_set_i,
    input  logic [3:0]                              we_mark_i,
    input  logic [1:0]                              we_hold_i,
    input  logic [4:0]                              whole_i,
    input  logic [5*tonic_pkg::WINDOW_W-1:0]        window_i,
    input  logic [5*tonic_pkg::DUTY_W-1:0]          duty_i,
    input  logic [5*tonic_user_pkg::STATE_W-1:0]    state_i,
    output logic [6*tonic_pkg::WINDOW_W-1:0]        window_o,
    output logic [6*tonic_pkg::DUTY_W-1:0]          duty_o,
    output logic [6*tonic_user_pkg::STATE_W-1:0]    state_o
);
  localparam int unsigned F = $clog2(FLOWS);
  localparam int unsigned K = tonic_pkg::K;
  localparam int unsigned SIZE_W = tonic_pkg::SIZE_W;
  localparam int unsigned COUNT_W = tonic_pkg::COUNT_W;
  localparam int unsigned U = tonic_user_pkg::STATE_W;
  localparam int unsigned WINDOW_W = tonic_pkg::WINDOW_W;
  localparam int unsigned DUTY_W = tonic_pkg::DUTY_W;
  localparam int unsigned READS = (DEBUG != 0) ? 6 : 5;

  localparam int unsigned GEN_W = 24 + 24 + 1 + 24;
  localparam int unsigned ACK_W = 24 + K;
  localparam int unsigned RTX_W = K + K;
  localparam int unsigned SET_W = SIZE_W + 24 + 23 + U;
  localparam int unsigned MARK_W = K + 1 + 1 + 24;
  localparam int unsigned HOLD_W = COUNT_W + 1;

  tonic_pkg::window_t window_gen;
  tonic_pkg::duty_t   duty_gen;
  assign window_gen = window_i[0*WINDOW_W+:WINDOW_W];
  assign duty_gen = duty_i[0*DUTY_W+:DUTY_W];
  tonic_pkg::window_t window_inc;
  tonic_pkg::duty_t   duty_inc;
  assign window_inc = window_i[1*WINDOW_W+:WINDOW_W];
  assign duty_inc = duty_i[1*DUTY_W+:DUTY_W];
  tonic_pkg::window_t window_per;
  tonic_pkg::duty_t   duty_per;
  assign window_per = window_i[2*WINDOW_W+:WINDOW_W];
  assign duty_per = duty_i[2*DUTY_W+:DUTY_W];
  tonic_pkg::window_t window_dep;
  tonic_pkg::duty_t   duty_dep;
  assign window_dep = window_i[3*WINDOW_W+:WINDOW_W];
  assign duty_dep = duty_i[3*DUTY_W+:DUTY_W];
  tonic_pkg::window_t window_ack;
  tonic_pkg::duty_t   duty_ack;
  assign window_ack = window_i[4*WINDOW_W+:WINDOW_W];
  assign duty_ack = duty_i[4*DUTY_W+:DUTY_W];

  logic [5:0] in_use;

  // Whether a flow exists: the only state that is reset.
  logic [FLOWS-1:0] in_use_q;
  bit_array #(.W(FLOWS), .SETS(1), .CLEARS(1)) i_in_use (
      .clk(clk),
      .rst_n(rst_n),
      .set_i(add_i),
      .set_at_i(flow_i[0+:F]),
      .clear_i(remove_i),
      .clear_at_i(flow_i[0+:F]),
      .bits_o(in_use_q)
  );
  always_ff @(posedge clk) begin
    for (int unsigned r = 0; r < 6; r++) begin
      if ((add_i || remove_i) && flow_i[0+:F] == next_flow_i[r*F+:F]) in_use[r] <= add_i;
      else in_use[r] <= in_use_q[next_flow_i[r*F+:F]];
    end
  end

  generate
    if (WHOLE_GROUPS != 0) begin : g_whole
      localparam int unsigned LEFT_W = WINDOW_W - 1;
      localparam int unsigned BOTH_W = DUTY_W + U;
      logic [(READS-1)*LEFT_W-1:0] windows;
      logic [READS*BOTH_W-1:0]     duties;
      // `in_use` is the lowest bit of a window.
      ram_4w4r #(.WIDTH(LEFT_W), .DEPTH(FLOWS), .READS(READS - 1)) i_window (
          .clk(clk),
          .rst_n(rst_n),
          .we_i({whole_i[4], whole_i[2:0]}),
          .waddr_i({flow_i[4*F+:F], flow_i[0+:3*F]}),
          .wdata_i({
            window_i[4*WINDOW_W+1+:LEFT_W],
            window_i[2*WINDOW_W+1+:LEFT_W],
            window_i[1*WINDOW_W+1+:LEFT_W],
            window_i[0*WINDOW_W+1+:LEFT_W]
          }),
          .raddr_i(((READS - 1) * F)'({next_flow_i[5*F+:F], next_flow_i[4*F+:F], next_flow_i[0+:3*F]})),
          .rdata_o(windows)
      );
      ram_mwnr #(.WIDTH(BOTH_W), .DEPTH(FLOWS), .WRITES(5), .READS(READS)) i_duty (
          .clk(clk),
          .rst_n(rst_n),
          .we_i(whole_i),
          .waddr_i(flow_i),
          .wdata_i({
            state_i[4*U+:U], duty_i[4*DUTY_W+:DUTY_W],
            state_i[3*U+:U], duty_i[3*DUTY_W+:DUTY_W],
            state_i[2*U+:U], duty_i[2*DUTY_W+:DUTY_W],
            state_i[1*U+:U], duty_i[1*DUTY_W+:DUTY_W],
            state_i[0*U+:U], duty_i[0*DUTY_W+:DUTY_W]
          }),
          .raddr_i(next_flow_i[READS*F-1:0]),
          .rdata_o(duties)
      );
      for (genvar r = 0; r < 6; r++) begin : g_read
        // Departures read no window; a reader for simulation there may not be.
        if (r == 3 || r >= READS) begin : g_none
          assign window_o[r*WINDOW_W+:WINDOW_W] = {{LEFT_W{1'b0}}, in_use[r]};
        end else begin : g_window
          assign window_o[r*WINDOW_W+:WINDOW_W] = {windows[(r<3?r:r-1)*LEFT_W+:LEFT_W], in_use[r]};
        end
        if (r >= READS) begin : g_no_duty
          assign {state_o[r*U+:U], duty_o[r*DUTY_W+:DUTY_W]} = '0;
        end else begin : g_duty
          assign {state_o[r*U+:U], duty_o[r*DUTY_W+:DUTY_W]} = duties[r*BOTH_W+:BOTH_W];
        end
      end
    end else begin : g_fields
      logic [6*GEN_W-1:0] gen;
      logic [6*ACK_W-1:0] ack;
      logic [6*RTX_W-1:0] rtx;
      logic [6*SET_W-1:0] set;
      logic [6*MARK_W-1:0] mark;
      logic [6*HOLD_W-1:0] hold;

      // Next, limit and short last segment, count of generated segments.
      ram_mwnr #(.WIDTH(GEN_W), .DEPTH(FLOWS), .WRITES(1), .READS(READS)) i_gen (
          .clk(clk),
          .rst_n(rst_n),
          .we_i(we_gen_i),
          .waddr_i({flow_i[0*F+:F]}),
          .wdata_i({{window_gen.next, window_gen.limit, window_gen.has_short_last, duty_gen.total_sent}}),
          .raddr_i(next_flow_i[READS*F-1:0]),
          .rdata_o(gen[READS*GEN_W-1:0])
      );
      // Start and acknowledged segments.
      ram_mwnr #(.WIDTH(ACK_W), .DEPTH(FLOWS), .WRITES(2), .READS(READS)) i_ack (
          .clk(clk),
          .rst_n(rst_n),
          .we_i(we_ack_i),
          .waddr_i({flow_i[4*F+:F], flow_i[0*F+:F]}),
          .wdata_i({{window_ack.start, window_ack.acked},
                    {window_gen.start, window_gen.acked}}),
          .raddr_i(next_flow_i[READS*F-1:0]),
          .rdata_o(ack[READS*ACK_W-1:0])
      );
      // Numbers of retransmissions.
      ram_mwnr #(.WIDTH(RTX_W), .DEPTH(FLOWS), .WRITES(2), .READS(READS)) i_rtx (
          .clk(clk),
          .rst_n(rst_n),
          .we_i(we_rtx_i),
          .waddr_i({flow_i[4*F+:F], flow_i[0*F+:F]}),
          .wdata_i({{window_ack.repeats_low, window_ack.repeats_high},
                    {window_gen.repeats_low, window_gen.repeats_high}}),
          .raddr_i(next_flow_i[READS*F-1:0]),
          .rdata_o(rtx[READS*RTX_W-1:0])
      );
      // Settings and the program's state.
      ram_mwnr #(.WIDTH(SET_W), .DEPTH(FLOWS), .WRITES(3), .READS(READS)) i_set (
          .clk(clk),
          .rst_n(rst_n),
          .we_i(we_set_i),
          .waddr_i({flow_i[2*F+:F], flow_i[1*F+:F], flow_i[0*F+:F]}),
          .wdata_i({{window_per.size, duty_per.timer, duty_per.rate, state_i[2*U+:U]},
                    {window_inc.size, duty_inc.timer, duty_inc.rate, state_i[1*U+:U]},
                    {window_gen.size, duty_gen.timer, duty_gen.rate, state_i[0*U+:U]}}),
          .raddr_i(next_flow_i[READS*F-1:0]),
          .rdata_o(set[READS*SET_W-1:0])
      );
      // Marks, timer, whether there is a segment to send.
      ram_mwnr #(.WIDTH(MARK_W), .DEPTH(FLOWS), .WRITES(4), .READS(READS)) i_mark (
          .clk(clk),
          .rst_n(rst_n),
          .we_i(we_mark_i),
          .waddr_i({flow_i[4*F+:F], flow_i[2*F+:F], flow_i[1*F+:F], flow_i[0*F+:F]}),
          .wdata_i({{duty_ack.marked, duty_ack.idle, duty_ack.timer_on, duty_ack.expiry},
                    {duty_per.marked, duty_per.idle, duty_per.timer_on, duty_per.expiry},
                    {duty_inc.marked, duty_inc.idle, duty_inc.timer_on, duty_inc.expiry},
                    {duty_gen.marked, duty_gen.idle, duty_gen.timer_on, duty_gen.expiry}}),
          .raddr_i(next_flow_i[READS*F-1:0]),
          .rdata_o(mark[READS*MARK_W-1:0])
      );
      // Addresses that wait for credit.
      ram_mwnr #(.WIDTH(HOLD_W), .DEPTH(FLOWS), .WRITES(2), .READS(READS)) i_hold (
          .clk(clk),
          .rst_n(rst_n),
          .we_i(we_hold_i),
          .waddr_i({flow_i[3*F+:F], flow_i[0*F+:F]}),
          .wdata_i({{duty_dep.outstanding, duty_dep.back_pressured},
                    {duty_gen.outstanding, duty_gen.back_pressured}}),
          .raddr_i(next_flow_i[READS*F-1:0]),
          .rdata_o(hold[READS*HOLD_W-1:0])
      );

      if (DEBUG == 0) begin : g_no_debug
        assign gen[5*GEN_W+:GEN_W] = '0;
        assign ack[5*ACK_W+:ACK_W] = '0;
        assign rtx[5*RTX_W+:RTX_W] = '0;
        assign set[5*SET_W+:SET_W] = '0;
        assign mark[5*MARK_W+:MARK_W] = '0;
        assign hold[5*HOLD_W+:HOLD_W] = '0;
      end

      for (genvar r = 0; r < 6; r++) begin : g_read
        dd_fields i_fields (
            .in_use_i(in_use[r]),
            .gen_i(gen[r*GEN_W+:GEN_W]),
            .ack_i(ack[r*ACK_W+:ACK_W]),
            .rtx_i(rtx[r*RTX_W+:RTX_W]),
            .set_i(set[r*SET_W+:SET_W]),
            .mark_i(mark[r*MARK_W+:MARK_W]),
            .hold_i(hold[r*HOLD_W+:HOLD_W]),
            .window_o(window_o[r*WINDOW_W+:WINDOW_W]),
            .duty_o(duty_o[r*DUTY_W+:DUTY_W]),
            .state_o(state_o[r*U+:U])
        );
      end
    end
  endgenerate
endmodule
