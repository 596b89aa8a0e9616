// Timing wheel: flows that wait for credit until a known cycle.
//
// Source: Tonic, section 3.3.2; the model is crates/rnic-tonic/src/cr/wheel.rs, equal in every cycle. Two levels of
// 2048 slots: a slot of the first is one cycle, one of the second 1024 cycles. A slot is a linked list of flows. In a
// cycle one slot of the first level becomes due (one concatenation), one flow falls from the second level to the first,
// one due flow leaves (`valid_o`, combinational), and two are armed, `delay_i` cycles from now: at least 1, at most
// 2045 * 1024. A flow is armed once at a time, and not in the cycle in which it leaves.
module wheel #(
    parameter int unsigned FLOWS = 1024
) (
    input  logic                       clk,
    input  logic                       rst_n,
    input  logic [23:0]                now_i,
    input  logic [1:0]                 arm_i,
    input  logic [2*$clog2(FLOWS)-1:0] flow_i,
    input  logic [2*21-1:0]            delay_i,
    output logic                       valid_o,
    output logic [$clog2(FLOWS)-1:0]   flow_o
);
  localparam int unsigned F = $clog2(FLOWS);
  localparam int unsigned SLOTS = 2048;
  localparam int unsigned S = 11;
  // A flow that falls is at most 2047 cycles early and 2048 late.
  localparam int unsigned DUE_W = 13;

  // Lists: a flow's successor, and first and last flow of each slot. The bits of slots that are not empty are reset.
  logic [SLOTS-1:0] cycle_used_q, period_used_q;
  logic             due_q, due_d, fall_q, fall_d;
  logic [F-1:0]     due_first_q, due_last_q, due_first_d, due_last_d;
  logic [F-1:0]     fall_first_q, fall_last_q, fall_first_d, fall_last_d;

  // 1. The slot of this cycle becomes due.
  logic         is_expired, is_period;
  logic [F-1:0] expired_first, expired_last, period_first, period_last;
  logic [S-1:0] now_slot, period_slot;
  assign now_slot = now_i[S-1:0];
  assign period_slot = now_i[10+:S] + S'(1);
  assign is_expired = cycle_used_q[now_slot];
  assign is_period = (now_i[9:0] == 10'd0) && period_used_q[period_slot];

  // 2. One flow falls, to its slot of the first level, or to the due list when it is late.
  logic               falls, is_late;
  logic [F-1:0]       faller, after_faller;
  logic [DUE_W-1:0]   faller_due, faller_left;
  logic [S-1:0]       faller_slot;
  assign falls = fall_q || is_period;
  assign faller = fall_q ? fall_first_q : period_first;
  assign faller_left = faller_due - now_i[DUE_W-1:0];
  assign is_late = falls && (faller_left == '0 || faller_left[DUE_W-1]);
  assign faller_slot = faller_due[S-1:0];
  always_comb begin
    fall_first_d = after_faller;
    fall_last_d = is_period ? period_last : fall_last_q;
    fall_d = falls;
    if (fall_q && fall_first_q == fall_last_q) begin
      fall_first_d = period_first;
      fall_d = is_period;
    end else if (!fall_q && period_first == period_last) begin
      fall_d = 1'b0;
    end
  end

  // 3. One due flow leaves: of the due list, then of the slot, then the one that fell late.
  logic [F-1:0] after_due;
  assign valid_o = due_q || is_expired || is_late;
  assign flow_o = due_q ? due_first_q : (is_expired ? expired_first : faller);
  always_comb begin
    due_first_d = after_due;
    due_last_d = is_late ? faller : (is_expired ? expired_last : due_last_q);
    due_d = valid_o;
    if (due_q) begin
      if (due_first_q == due_last_q) begin
        due_first_d = is_expired ? expired_first : faller;
        due_d = is_expired || is_late;
      end
    end else if (is_expired) begin
      if (expired_first == expired_last) begin
        due_first_d = faller;
        due_d = is_late;
      end
    end else begin
      due_d = 1'b0;
    end
  end

  // 4. Flows enter slots: the one that falls, and the two that are armed, in this order.
  logic [2:0]     in_cycle, in_period, is_used;
  logic [3*S-1:0] slot;
  logic [3*F-1:0] flow, cycle_last, period_list_last, prior;
  logic [2*24-1:0] due;
  always_comb begin
    logic [13:0] periods;
    in_cycle[0] = falls && !is_late;
    in_period[0] = 1'b0;
    slot[0+:S] = faller_slot;
    flow[0+:F] = faller;
    for (int unsigned a = 0; a < 2; a++) begin
      due[a*24+:24] = now_i + 24'(delay_i[a*21+:21]);
      periods = due[a*24+10+:14] - now_i[23:10];
      in_cycle[a+1] = arm_i[a] && (periods <= 14'd1);
      in_period[a+1] = arm_i[a] && (periods > 14'd1);
      slot[(a+1)*S+:S] = in_cycle[a+1] ? due[a*24+:S] : due[a*24+10+:S];
      flow[(a+1)*F+:F] = flow_i[a*F+:F];
    end
  end

  // Earlier ones of this cycle in the same slot come before.
  logic same_01, same_02, same_12;
  assign same_01 = in_cycle[0] && in_cycle[1] && slot[0+:S] == slot[S+:S];
  assign same_02 = in_cycle[0] && in_cycle[2] && slot[0+:S] == slot[2*S+:S];
  assign same_12 = ((in_cycle[1] && in_cycle[2]) || (in_period[1] && in_period[2])) && slot[S+:S] == slot[2*S+:S];
  always_comb begin
    for (int unsigned p = 0; p < 3; p++) begin
      is_used[p] = in_cycle[p] ? cycle_used_q[slot[p*S+:S]] : period_used_q[slot[p*S+:S]];
      prior[p*F+:F] = in_cycle[p] ? cycle_last[p*F+:F] : period_list_last[p*F+:F];
    end
    if (same_01) begin
      is_used[1] = 1'b1;
      prior[F+:F] = faller;
    end
    if (same_02) begin
      is_used[2] = 1'b1;
      prior[2*F+:F] = faller;
    end
    if (same_12) begin
      is_used[2] = 1'b1;
      prior[2*F+:F] = flow[F+:F];
    end
  end

  bit_array #(.W(SLOTS), .SETS(3), .CLEARS(1)) i_cycle_used (
      .clk(clk),
      .rst_n(rst_n),
      .set_i(in_cycle),
      .set_at_i(slot),
      .clear_i(1'b1),
      .clear_at_i(now_slot),
      .bits_o(cycle_used_q)
  );
  bit_array #(.W(SLOTS), .SETS(2), .CLEARS(1)) i_period_used (
      .clk(clk),
      .rst_n(rst_n),
      .set_i(in_period[2:1]),
      .set_at_i(slot[3*S-1:S]),
      .clear_i(is_period),
      .clear_at_i(period_slot),
      .bits_o(period_used_q)
  );

  // Memories. Of several writes of a slot's last flow, the last one counts.
  logic [2:0] last_writes;
  assign last_writes = {1'b1, !same_12, !same_01 && !same_02};

  ram_mw_lut #(.WIDTH(F), .DEPTH(SLOTS), .WRITES(3), .READS(1)) i_cycle_first (
      .clk(clk),
      .rst_n(rst_n),
      .we_i(in_cycle & ~is_used),
      .waddr_i(slot),
      .wdata_i(flow),
      .raddr_i(now_slot),
      .rdata_o(expired_first)
  );
  ram_mw_lut #(.WIDTH(F), .DEPTH(SLOTS), .WRITES(3), .READS(4)) i_cycle_last (
      .clk(clk),
      .rst_n(rst_n),
      .we_i(in_cycle & last_writes),
      .waddr_i(slot),
      .wdata_i(flow),
      .raddr_i({slot, now_slot}),
      .rdata_o({cycle_last, expired_last})
  );
  ram_mw_lut #(.WIDTH(F), .DEPTH(SLOTS), .WRITES(2), .READS(1)) i_period_first (
      .clk(clk),
      .rst_n(rst_n),
      .we_i(in_period[2:1] & ~is_used[2:1]),
      .waddr_i(slot[3*S-1:S]),
      .wdata_i(flow[3*F-1:F]),
      .raddr_i(period_slot),
      .rdata_o(period_first)
  );
  ram_mw_lut #(.WIDTH(F), .DEPTH(SLOTS), .WRITES(2), .READS(3)) i_period_last (
      .clk(clk),
      .rst_n(rst_n),
      .we_i(in_period[2:1] & last_writes[2:1]),
      .waddr_i(slot[3*S-1:S]),
      .wdata_i(flow[3*F-1:F]),
      .raddr_i({slot[3*S-1:S], period_slot}),
      .rdata_o({period_list_last[3*F-1:F], period_last})
  );
  assign period_list_last[0+:F] = '0;

  // Successors. A list of one flow, which leaves in this cycle, needs none.
  logic         joins_due, joins_late, joins_fall;
  logic [F-1:0] late_after;
  assign joins_due = due_q && is_expired && due_first_q != due_last_q;
  assign late_after = is_expired ? expired_last : due_last_q;
  assign joins_late = is_late && ((due_q && (is_expired || due_first_q != due_last_q)) ||
      (!due_q && is_expired && expired_first != expired_last));
  assign joins_fall = fall_q && is_period && fall_first_q != fall_last_q;
  ram_mw_lut #(.WIDTH(F), .DEPTH(FLOWS), .WRITES(5), .READS(2)) i_next (
      .clk(clk),
      .rst_n(rst_n),
      .we_i({
        (in_cycle[2] || in_period[2]) && is_used[2],
        (in_cycle[1] || in_period[1]) && is_used[1],
        joins_late || (in_cycle[0] && is_used[0]),
        joins_fall,
        joins_due
      }),
      .waddr_i({prior[3*F-1:F], is_late ? late_after : prior[0+:F], fall_last_q, due_last_q}),
      .wdata_i({flow, period_first, expired_first}),
      .raddr_i({faller, flow_o}),
      .rdata_o({after_faller, after_due})
  );

  ram_mw_lut #(.WIDTH(DUE_W), .DEPTH(FLOWS), .WRITES(2), .READS(1)) i_due (
      .clk(clk),
      .rst_n(rst_n),
      .we_i(arm_i),
      .waddr_i(flow_i),
      .wdata_i({due[24+:DUE_W], due[0+:DUE_W]}),
      .raddr_i(faller),
      .rdata_o(faller_due)
  );

  always_ff @(posedge clk) begin
    if (!rst_n) begin
      due_q <= 1'b0;
      fall_q <= 1'b0;
    end else begin
      due_q <= due_d;
      fall_q <= fall_d;
    end
    due_first_q <= due_first_d;
    due_last_q <= due_last_d;
    fall_first_q <= fall_first_d;
    fall_last_q <= fall_last_d;
  end

`ifndef SYNTHESIS
  logic [FLOWS-1:0] armed_q, armed_d;
  always_comb begin
    armed_d = armed_q;
    if (valid_o) armed_d[flow_o] = 1'b0;
    for (int unsigned a = 0; a < 2; a++) if (arm_i[a]) armed_d[flow_i[a*F+:F]] = 1'b1;
  end
  always_ff @(posedge clk) begin
    armed_q <= rst_n ? armed_d : '0;
    // Otherwise a flow leaves the wheel that was not armed.
    if (rst_n && valid_o) assert (armed_q[flow_o]);
    for (int unsigned a = 0; a < 2; a++) begin
      if (rst_n && arm_i[a]) begin
        // Otherwise a flow is armed twice.
        assert (!armed_q[flow_i[a*F+:F]]);
        // Otherwise delay out of range.
        assert (delay_i[a*21+:21] != '0 && delay_i[a*21+:21] <= 21'(2045 * 1024));
      end
    end
  end
`endif
endmodule
