// The words of `tonic_receiver`'s memories as the state of a flow.
module tonic_reception (
    input  logic                       in_use_i,
    input  logic [96+tonic_pkg::K:0]   main_i,
    input  logic [1:0]                 flags_i,
    output tonic_pkg::reception_t      state_o
);
  assign state_o.in_use = in_use_i;
  assign {state_o.expected, state_o.seen, state_o.delayed_at, state_o.is_reported, state_o.granted,
          state_o.notified_at} = main_i;
  assign {state_o.is_delayed, state_o.is_notified} = flags_i;
endmodule
